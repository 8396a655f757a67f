package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// The sentences that stores keep with a run. %s is what is filled in, the
// same in Go and in SQL.
const (
	LeaseExpired = "the lease of worker %s expired (crash %s)" // the worker, the crash count
	CrashedDead  = "its worker crashed, and its crash policy is dead"
	CrashedAlone = "crashed its worker %s times, the last time while it was executed alone" // the crash count
	StrandedDead = "its lease is missing, and its crash policy is dead"
	LimitFull    = "limit %s was full (max %s)" // the limit, its max
)

// The kinds of things that the audit log reports.
const (
	KindRun      = "run"
	KindBulk     = "bulk" // all runs of a filter
	KindQueue    = "queue"
	KindSchedule = "schedule"
	KindBatch    = "batch"
)

// The words of the audit log for what a store.RunAction, store.QueueAction or
// store.ScheduleAction does not name.
const (
	Created       = "created"                       // a schedule, by an operator
	Edited        = "edited"                        // likewise
	Reruns        = "rerun"                         // a run was made after another one
	Reveals       = "reveal"                        // what is hidden of a run was shown
	BatchCloses   = "close"                         // a batch takes no more runs
	SessionEnds   = "end"                           // a person has logged out
	OrphanPaused  = "paused, no worker declares it" // by Orphan
	OrphanResumed = "resumed, it is declared again" // by Orphan
)

// RanNow is the audit log's word for a run of a schedule that an operator asked for.
func RanNow(id store.RunID) string { return "run " + id.String() }

// UnknownScheduleAction refuses an action that schedules do not know.
func UnknownScheduleAction(action store.ScheduleAction) error {
	return fmt.Errorf("%w: %q is not an action on a schedule", store.ErrInvalid, action)
}

// OfWorkers refuses a program's schedule that would replace one which workers declare.
func OfWorkers() error {
	return fmt.Errorf("%w: workers declare a schedule of this name", store.ErrConflict)
}

// NotOfSchedule refuses the id of a run that is not of the schedule for which it
// was given.
func NotOfSchedule(id store.RunID) error {
	return fmt.Errorf("run %s is not one of its runs: %w", id, store.ErrConflict)
}

// NoRoom refuses a run of a schedule that may have no other unfinished run.
func NoRoom() error { return fmt.Errorf("one of its runs has not ended: %w", store.ErrConflict) }

// Full is the reason of a run that a limit did not let wait.
func Full(limit string, most int) string { return fill(LimitFull, limit, strconv.Itoa(most)) }

// TextOrNil is a text as a store keeps it: none is null.
func TextOrNil(text string) *string {
	if text == "" {
		return nil
	}
	kept := text // or an empty text would be copied to the heap too
	return &kept
}

// fill puts words into a sentence, each for the next %s.
func fill(sentence string, words ...string) string {
	parts := strings.Split(sentence, "%s")
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i < len(words) {
			b.WriteString(words[i])
		}
	}
	return b.String()
}
