package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
)

// Controls is the part of a store that operators use, through package operate.
type Controls interface {
	// Operate changes runs on behalf of an operator, and returns one ChangedRun
	// for each run of the command, in order. Changes are written to the audit log in
	// the same transaction. A run that another transaction has locked at this
	// moment (a claim, a user's transaction) is retried for as long as ctx allows,
	// at most about ten seconds, and then returned as RunLocked; the call does not
	// wait for any lock in that time. On PostgreSQL the runs that had to be retried
	// are changed in transactions of their own. A command that makes no sense is
	// refused with ErrInvalid and changes nothing.
	Operate(ctx context.Context, order RunCommand) ([]ChangedRun, error)
	// Rerun stores a new run that an operator creates after another one. It has the
	// occurrence of that one (see RunInfo.Occurrence) but is no run of the schedule. Of
	// need not exist any more: it is named in the audit log, and the new run then has no
	// occurrence. A run whose id is already stored is left unchanged.
	Rerun(ctx context.Context, of RunID, run NewRun, by string) (Receipt, error)
	// Reveal records in the audit log that an operator is shown the hidden values of a run. It
	// returns ErrNotFound if there is no such run.
	Reveal(ctx context.Context, run RunID, reason, by string) error
	// SetQueue pauses or resumes a queue, which need not have been used yet.
	// No claim that begins after SetQueue has returned takes a run of a paused
	// queue. Runs that are executing continue.
	SetQueue(ctx context.Context, name string, action QueueAction, by string) error
	// CancelRequests returns the runs of the claims that are running and for which an
	// operator has requested cancellation. A repeat returns them again.
	CancelRequests(ctx context.Context, claims []lease.ClaimID) ([]CancelRequest, error)
}

// RunAction is an operator's action on runs.
type RunAction string

// The actions on runs.
const (
	// CancelRuns ends a pending run in cancelled, with the reason. For a
	// running run it is a request: its worker is notified, and the run ends
	// cancelled unless its outcome is a success or a death, whatever happens to
	// the worker. A finished run is left unchanged.
	CancelRuns RunAction = "cancel"
	// RetryRuns makes a dead or cancelled run pending again, due now, with all
	// its attempts, no crash counted, not isolated, and without its expiry. A
	// late settle of an earlier claim is refused. An unfinished run is left
	// unchanged; a succeeded one, and one whose unique key another run holds,
	// is a conflict.
	RetryRuns RunAction = "retry"
	// DeleteRuns removes a finished or a pending run with all that belongs to
	// it. A running run is a conflict.
	DeleteRuns RunAction = "delete"
	// AcknowledgeRuns takes a dead run off the open problems. The run stays dead; if a
	// retry ends in another death, its problem is open again. A run that was
	// acknowledged is left unchanged; one that is not dead is a conflict.
	AcknowledgeRuns RunAction = "acknowledge"
	// ReleaseRuns makes a dependent due that waits for its conditions, and was never executed:
	// they count as met from then on, whatever becomes of their sources. A run that waits for
	// no condition is left unchanged; one that has ended is a conflict.
	ReleaseRuns RunAction = "release"
)

// States are the states of the runs that a bulk change with this action changes if its
// filter names none.
func (a RunAction) States() []State {
	switch a {
	case CancelRuns:
		return []State{Pending, Running}
	case RetryRuns:
		return []State{Dead, Cancelled}
	case DeleteRuns:
		return []State{Succeeded, Dead, Cancelled}
	case AcknowledgeRuns:
		return []State{Dead}
	case ReleaseRuns:
		return []State{Pending}
	default:
		return nil
	}
}

// MaxCommandRuns is how many runs one command may name.
const MaxCommandRuns = 1000

// RunCommand requests one action on runs.
type RunCommand struct {
	Action RunAction
	Runs   []RunID // at most MaxCommandRuns; one that is named twice is changed once
	Reason string  // kept with cancelled runs, and in the audit log; at most 1000 bytes of text
	By     string  // the actor, for the audit log; not empty
	// Bulk is the bulk change that the command is a step of; nil: none. The audit log
	// then has no row for each run, but one for all steps, with their filter and
	// the number of runs that they have changed.
	Bulk *BulkChange
}

// BulkChange is a change to all runs that pass a filter.
type BulkChange struct {
	ID     uuid.UUID // random, the same for all of its steps
	Batch  *BatchID  // only members of this batch; nil: any run
	Filter Filter
}

// ChangeResult is what happened to one run of a command.
type ChangeResult string

// What happens to a run.
const (
	RunChanged      ChangeResult = "changed"          // it was changed
	CancelRequested ChangeResult = "cancel_requested" // it is running, and will be cancelled
	RunUnchanged    ChangeResult = "unchanged"        // there was nothing to do
	RunNotFound     ChangeResult = "not_found"        // there is no such run
	RunConflict     ChangeResult = "conflict"         // its state does not allow it
	RunLocked       ChangeResult = "locked"           // another transaction kept it locked
)

// ChangedRun is the answer about one run of a command.
type ChangedRun struct {
	ID     RunID
	Result ChangeResult
	State  State // after the action, or before it if the run was deleted; empty for a missing run
	// Key and KeyHolder are set where a retry conflicts because another run holds
	// the run's unique key: the key, and that run.
	Key       string
	KeyHolder RunID
}

// MarshalJSON writes the state of a run that there is not as null, and says
// nothing of keys but where one is why.
func (c ChangedRun) MarshalJSON() ([]byte, error) {
	written := struct {
		ID        RunID        `json:"id"`
		Result    ChangeResult `json:"result"`
		State     *State       `json:"state"`
		Key       string       `json:"key,omitempty"`
		KeyHolder *RunID       `json:"key_holder,omitempty"`
	}{ID: c.ID, Result: c.Result, State: &c.State, Key: c.Key}
	if c.KeyHolder != (RunID{}) {
		written.KeyHolder = &c.KeyHolder
	}
	if c.Result == RunNotFound {
		written.State = nil
	}
	return json.Marshal(written)
}

// CancelRequest notifies the worker of a claim that a run is to be cancelled.
type CancelRequest struct {
	Claim  lease.ClaimID
	Run    RunID
	Reason string
}

// QueueAction is an operator's action on a queue.
type QueueAction string

// The actions on queues. A repeat is a no-op.
const (
	PauseQueue  QueueAction = "pause"
	ResumeQueue QueueAction = "resume"
)

// QueueInfo describes a queue. A queue is known when a run was ever enqueued on
// it, or when it was paused or capped.
type QueueInfo struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
	// MaxConcurrent is how many of its runs may execute concurrently, over all workers:
	// the Max of the limit QueueCap. Nil: any number.
	MaxConcurrent *int `json:"max_concurrent"`
}

// Count is a number of runs. It is exact up to a bound of the store's; above it, it says
// what it is.
type Count struct {
	N         int64 `json:"n"`
	AtLeast   bool  `json:"at_least,omitempty"`  // N were counted, and there may be more
	Estimated bool  `json:"estimated,omitempty"` // N is an estimate of this number itself
}

// Plus adds another count. A sum is as certain as its less certain part.
func (c Count) Plus(other Count) Count {
	sum := Count{N: c.N + other.N, AtLeast: c.AtLeast || other.AtLeast, Estimated: c.Estimated || other.Estimated}
	sum.AtLeast = sum.AtLeast && !sum.Estimated
	return sum
}

// Change is one row of the audit log: what an operator, or a policy that acts as one, has
// changed.
type Change struct {
	ID      int64           `json:"id"` // rises
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Kind    string          `json:"kind"`    // of the thing changed: run, bulk (all runs of a filter), queue, schedule, limit, lock, session
	Subject string          `json:"subject"` // its id, or its name
	Action  string          `json:"action"`
	Detail  json.RawMessage `json:"detail"`         // what the action does not say; nil: nothing
	Runs    int64           `json:"runs,omitempty"` // of a bulk change: how many runs it has changed
}

// ChangeFilter narrows a list of changes. The zero value lists everything.
type ChangeFilter struct {
	Kind    string
	Subject string
	By      string    // only changes of this actor; empty: any
	Action  string    // only this action; empty: any
	Since   time.Time // only changes at or after it; the zero time: any
	Before  int64     // cursor: only changes with a smaller id; zero: none
	Limit   int       // 1 to 200; zero means 50
}

// ChangePage is one page of a list of changes, newest first. A store reads a
// bounded number of changes for one page: if few pass the filter, a page may
// be short, or empty, although there are more.
type ChangePage struct {
	Changes []Change
	Next    int64 // as ChangeFilter.Before, the next page; zero: this is the last
}

// maxReason bounds the reason of a command, in bytes.
const maxReason = 1000

// Check reports what is wrong with a command, wrapped in ErrInvalid. Stores
// call it before they change anything.
func (o *RunCommand) Check() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Action.States() == nil, "action %q: want %s, %s, %s, %s or %s",
		storable.Clip(string(o.Action), 50), CancelRuns, RetryRuns, DeleteRuns, AcknowledgeRuns, ReleaseRuns)
	refuse(len(o.Runs) > MaxCommandRuns, "%d runs: want at most %d", len(o.Runs), MaxCommandRuns)
	if err := checkReason(o.Reason); err != nil {
		faults = append(faults, err)
	}
	refuse(o.Bulk != nil && o.Bulk.ID == uuid.UUID{}, "a bulk change without an id")
	if err := checkActor(o.By); err != nil {
		faults = append(faults, err)
	}
	return invalid("command", faults)
}

// CancelReason is the reason that cancelled runs are given: the command's own, or its
// actor.
func (o *RunCommand) CancelReason() string {
	if o.Reason != "" {
		return o.Reason
	}
	return "cancelled by " + o.By
}

// RevealDetail is what the audit log says of a run that is revealed; nil: nothing.
func RevealDetail(reason string) []byte { return (&RunCommand{Reason: reason}).Detail() }

// Detail is what the audit log says of a command besides its action; nil: nothing.
func (o *RunCommand) Detail() []byte {
	detail := struct {
		Reason string         `json:"reason,omitempty"`
		Batch  *BatchID       `json:"batch,omitempty"`
		Filter map[string]any `json:"filter,omitempty"`
	}{Reason: o.Reason}
	if o.Bulk != nil {
		detail.Batch, detail.Filter = o.Bulk.Batch, o.Bulk.Filter.words()
	}
	if o.Reason == "" && o.Bulk == nil {
		return nil
	}
	text, _ := json.Marshal(detail) // text always can be
	return text
}

// CheckReveal reports what is wrong with the audit log's entry for a run that is revealed,
// wrapped in ErrInvalid. Stores call it before they change anything.
func CheckReveal(reason, by string) error {
	if err := errors.Join(checkReason(reason), checkActor(by)); err != nil {
		return invalid("reveal", []error{err})
	}
	return nil
}

// CheckActor reports what is wrong with the name of who changes something, wrapped in
// ErrInvalid.
func CheckActor(by string) error {
	if err := checkActor(by); err != nil {
		return invalid("actor", []error{err})
	}
	return nil
}

// CheckQueueChange reports what is wrong with a change of a queue, wrapped in
// ErrInvalid. Stores call it before they change anything.
func CheckQueueChange(name string, action QueueAction, by string) error {
	var faults []error
	if err := CheckName("queue", name); err != nil {
		faults = append(faults, err)
	}
	if action != PauseQueue && action != ResumeQueue {
		faults = append(faults, fmt.Errorf("action %q: want %s or %s", storable.Clip(string(action), 50), PauseQueue, ResumeQueue))
	}
	if err := checkActor(by); err != nil {
		faults = append(faults, err)
	}
	return invalid("change of a queue", faults)
}

// CheckRerun reports what is wrong with a run that is to be created after
// another, wrapped in ErrInvalid. Stores call it before they store anything.
func CheckRerun(run NewRun, by string) error {
	if err := CheckRuns([]NewRun{run}); err != nil {
		return err
	}
	if err := checkActor(by); err != nil {
		return invalid("rerun", []error{err})
	}
	return nil
}

// checkReason reports what is wrong with why something is done.
func checkReason(reason string) error {
	if len(reason) > maxReason || storable.Text(reason, MaxErrorSize) != reason {
		return fmt.Errorf("reason %q: want at most %d bytes of text", storable.Clip(reason, 100), maxReason)
	}
	return nil
}

// checkActor reports what is wrong with the name of who changes something.
func checkActor(by string) error {
	if by == "" || len(by) > 2*MaxNameLength || storable.Text(by, MaxErrorSize) != by || storable.HasControl(by) {
		return fmt.Errorf("by %q: want the actor's name, 1 to %d bytes of text", storable.Clip(by, 100), 2*MaxNameLength)
	}
	return nil
}

func invalid(what string, faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, what, errors.Join(faults...))
}

// Most is how many changes the filter asks for. It returns ErrInvalid for a
// filter that makes no sense.
func (f *ChangeFilter) Most() (int, error) {
	for _, text := range []string{f.Kind, f.Subject, f.By, f.Action} {
		if len(text) > longestWord || !storable.IsText(text) {
			return 0, fmt.Errorf("%w: %q: want at most %d bytes of text without NUL", ErrInvalid, storable.Clip(text, 150), longestWord)
		}
	}
	if err := checkSince(f.Since); err != nil {
		return 0, err
	}
	return most(f.Limit, defaultPage, LargestPage)
}

// RerunDetail is what the audit log says of a rerun besides the run after which it
// was created: the new run.
func RerunDetail(made RunID) []byte {
	text, _ := json.Marshal(map[string]RunID{"run": made}) // ids always can be
	return text
}
