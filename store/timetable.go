package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// DeclareEvery is how often a worker repeats its declaration.
const DeclareEvery = time.Hour

// DeclaredWithin is how long after its last declaration a schedule, or the
// version of it that a worker has brought, counts as declared.
const DeclaredWithin = DeclareEvery + 15*time.Minute

// OrphanPolicy says what happens to schedules that no worker declares any
// more. The zero value leaves them to the operator, who sees them flagged.
type OrphanPolicy time.Duration

// DisableOrphans pauses a schedule that code has declared once and no worker
// for so long, at least two hours since workers declare hourly. It is resumed
// when a worker declares it again. Schedules of operators are left alone.
func DisableOrphans(after time.Duration) OrphanPolicy { return OrphanPolicy(after) }

// ScheduleRecord is a schedule as stored.
type ScheduleRecord struct {
	Name        string          `json:"name"`
	Rule        Rule            `json:"rule"`
	Plan        Plan            `json:"plan"`
	Job         string          `json:"job"`
	Queue       string          `json:"queue"`
	Priority    int             `json:"priority"`
	Args        json.RawMessage `json:"args"`
	MaxAttempts int             `json:"max_attempts"`
	Timeout     Duration        `json:"timeout"`
	OnCrash     CrashPolicy     `json:"on_crash"`
	Tags        []string        `json:"tags"`
	Metadata    Metadata        `json:"metadata,omitempty"`
	Limits      []LimitUse      `json:"limits"`
	Generation  int64           `json:"generation"`
	NextAt      *time.Time      `json:"next_at"` // nil: paused, over, or not planned yet
	Waiting     bool            `json:"waiting"` // the occurrence at NextAt waits for an earlier run to end
	Paused      bool            `json:"paused"`
	PausedBy    *string         `json:"paused_by"`        // who paused it; "orphan" for the orphan policy
	Edited      bool            `json:"edited"`           // an operator's version is in effect, until the code's changes
	DeclaredAt  *time.Time      `json:"declared_at"`      // by a worker; nil: never
	Orphaned    bool            `json:"orphaned"`         // declared once, and not within DeclaredWithin
	Fault       *string         `json:"fault"`            // why it could not be evaluated the last time
	Hidden      *Hidden         `json:"hidden,omitempty"` // what readers are not shown; nil: nothing. Stores leave it nil
}

// Schedule is the record as it may be edited and saved again.
func (r *ScheduleRecord) Schedule() Schedule {
	return Schedule{Name: r.Name, Rule: r.Rule, Plan: r.Plan, Generation: r.Generation, Job: r.Job, Queue: r.Queue,
		Priority: r.Priority, Args: r.Args, MaxAttempts: r.MaxAttempts, Timeout: time.Duration(r.Timeout), OnCrash: r.OnCrash,
		Tags: r.Tags, Metadata: r.Metadata, Limits: r.Limits, Paused: r.Paused}
}

// Record is the part of a record that the schedule itself determines.
func (s *Schedule) Record() ScheduleRecord {
	r := ScheduleRecord{Name: s.Name, Rule: s.Rule, Plan: s.Plan, Generation: s.Generation, Job: s.Job, Queue: s.Queue,
		Priority: s.Priority, Args: s.Args, MaxAttempts: s.MaxAttempts, Timeout: Duration(s.Timeout), OnCrash: s.OnCrash,
		Tags: append([]string{}, s.Tags...), Metadata: s.Metadata, Limits: s.Limits, Paused: s.Paused, Waiting: s.Waiting > 0}
	if !s.NextAt.IsZero() && !s.Paused {
		r.NextAt = &s.NextAt
	}
	return r
}

// HistoryKind says what a line of a schedule's history describes.
type HistoryKind string

// The kinds.
const (
	HistoryRun    HistoryKind = "run"    // an occurrence, or an operator's request, became a run
	HistorySkip   HistoryKind = "skip"   // occurrences did not become runs
	HistoryChange HistoryKind = "change" // an operator or a policy changed the schedule
)

// HistoryEntry is one line of what happened to a schedule.
type HistoryEntry struct {
	Kind       HistoryKind `json:"kind"`
	At         time.Time   `json:"at"`         // when the run was due, of the last occurrence skipped, or of the change
	Occurrence *string     `json:"occurrence"` // of a run; nil: an operator triggered it
	Run        *RunID      `json:"run"`
	State      *State      `json:"state"`  // of the run
	Reason     *string     `json:"reason"` // of a skip; what was changed
	First      *time.Time  `json:"first"`  // of occurrences skipped
	By         *string     `json:"by"`     // of a change
}

// ScheduleAction is what an operator does with a schedule.
type ScheduleAction string

// The actions.
const (
	PauseSchedule  ScheduleAction = "pause"
	ResumeSchedule ScheduleAction = "resume" // it is planned from now on
	DeleteSchedule ScheduleAction = "delete" // its runs stay; a worker that declares it creates it again
)

// Scheduler takes the schedules that a program makes of its own data, such as one for each
// customer. A Client, a Store and a store bound to a transaction (Tx) are Schedulers.
type Scheduler interface {
	// PutSchedule creates a schedule, or replaces the one of its name, which keeps
	// whether it is paused, and its next occurrence if it fires at the same times. The
	// generation of s is not looked at. A schedule that workers declare is not replaced:
	// ErrConflict. Like a declaration, it is not recorded in the audit log. To repeat it is
	// safe.
	PutSchedule(ctx context.Context, s Schedule) error
	// ChangeSchedule pauses, resumes or deletes on behalf of by, a person or a program, and
	// records that; ErrNotFound when there is none of the name. What is paused already
	// stays so.
	ChangeSchedule(ctx context.Context, name string, action ScheduleAction, by string) error
}

// ScheduleAdmin is the operator's part of a store's schedules. Every change is
// recorded with its actor, in the same transaction.
type ScheduleAdmin interface {
	// ListSchedules lists the schedules of these names, or all, by name.
	ListSchedules(ctx context.Context, names ...string) ([]ScheduleRecord, error)
	// ScheduleHistory reports what happened to a schedule's last occurrences and who
	// changed it, newest first, at most limit lines of each kind; ErrNotFound
	// when there is none of the name.
	ScheduleHistory(ctx context.Context, name string, limit int) ([]HistoryEntry, error)
	// SaveSchedule stores an operator's schedule, which CheckSchedule has to
	// accept. Generation 0 makes a new one: ErrConflict when the name is taken.
	// Another replaces the one of that generation: ErrConflict when it is no
	// longer the stored one. It begins a new generation, and is planned afresh
	// unless it fires at the same times: its rule, start, end, blackouts and spread
	// are the same.
	// What a worker declares does not change it until the code's own changes.
	SaveSchedule(ctx context.Context, s Schedule, by string) error
	// ChangeSchedule pauses, resumes or deletes; ErrNotFound when there is none
	// of the name. What is paused already stays so.
	ChangeSchedule(ctx context.Context, name string, action ScheduleAction, by string) error
	// RunSchedule stores a run of the schedule under an id of NewRunID, due now,
	// and does not move the schedule. Unless overlap is OverlapAllow it is refused
	// with ErrConflict while as many runs of the schedule as MaxUnfinished allows have not
	// ended. An id that a run of the schedule has changes nothing, so a call whose
	// answer was lost can be repeated; that of another run is an ErrConflict.
	RunSchedule(ctx context.Context, name string, id RunID, overlap OverlapPolicy, by string) error
}

// SortHistory orders lines newest first, as ScheduleHistory answers them.
func SortHistory(past []HistoryEntry) {
	slices.SortStableFunc(past, func(a, b HistoryEntry) int { return b.At.Compare(a.At) })
}
