package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// BatchID names a batch. The caller that makes the batch chooses it, as the ID of a run.
type BatchID = uuid.UUID

// Bounds of batches.
const (
	MaxBatchName   = 200     // bytes of a name
	MaxBatchReason = 1 << 10 // bytes of the reason for which a batch is cancelled
)

// NewBatch is a batch, as the first call that names it makes it. Later calls find it by its ID, and
// change nothing of it.
type NewBatch struct {
	ID   BatchID
	Name string // for people; empty: the batch is made elsewhere, and ErrNotFound if it does not exist

	// OpenFor is for how long runs may be added from outside, unless it is closed before. A batch
	// that is still open then is closed and has failed: it may not be whole. Zero: the
	// call that makes it closes it. A running member may always add runs to its batch.
	OpenFor time.Duration
	// EndsWithin is how long the batch may take, from when it was made; then it is cancelled.
	// Zero: no bound.
	EndsWithin time.Duration
	// FailFast cancels the batch when the first of its members is dead or cancelled.
	FailFast bool
	// Owned, in EnqueueUnder, makes it the batch of the holder: its handler may add runs until it
	// waits for the batch, and it is closed when the holder has ended. Not with OpenFor.
	Owned bool
	// Holders, in EnqueueUnder, is the batch of which the holder is a member; nothing else is set.
	Holders bool
}

// BatchState says what has become of a batch.
type BatchState int8

// The states of a batch. The numbers are stored.
const (
	BatchRunning   BatchState = 0 // it is open, or some of its members have not ended
	BatchSucceeded BatchState = 1 // it is closed, and all its members have succeeded; also if it has none
	BatchFailed    BatchState = 2 // it is closed, its members have ended, and some are dead or cancelled
	BatchCancelled BatchState = 3 // it was cancelled, or never closed, and its members have ended
)

var batchStateNames = [...]string{"running", "succeeded", "failed", "cancelled"} //nolint:gochecknoglobals // a constant table

// BatchStates are the states, in order.
func BatchStates() []BatchState {
	return []BatchState{BatchRunning, BatchSucceeded, BatchFailed, BatchCancelled}
}

// String returns the word of the state.
func (s BatchState) String() string {
	if s < 0 || int(s) >= len(batchStateNames) {
		return fmt.Sprintf("batch state(%d)", int8(s))
	}
	return batchStateNames[s]
}

// MarshalText writes the word of the state.
func (s BatchState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word of a state.
func (s *BatchState) UnmarshalText(text []byte) error {
	for i, name := range batchStateNames {
		if name == string(text) {
			*s = BatchState(i) //nolint:gosec // 0 to 3
			return nil
		}
	}
	return fmt.Errorf("%q is no state of a batch: want running, succeeded, failed or cancelled", text)
}

// BatchCounts are how many members a batch has, and how many of them have ended. They are exact: at
// every instant those of the members' states. A member that was deleted never belonged to it.
type BatchCounts struct {
	Members   int64 `json:"members"`
	Succeeded int64 `json:"succeeded"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
}

// Failed is how many members are dead or cancelled.
func (c BatchCounts) Failed() int64 { return c.Dead + c.Cancelled }

// Unfinished is how many members have not ended.
func (c BatchCounts) Unfinished() int64 { return c.Members - c.Succeeded - c.Failed() }

// Batch is a batch as it is stored. What has failed or ended stays so, though its counts change when
// a dead member is retried.
type Batch struct {
	ID        BatchID
	Name      string
	Owner     *RunID // the run whose handler has made it
	State     BatchState
	Counts    BatchCounts
	Closed    bool
	FailFast  bool
	Cancelled bool // it takes no more runs, and its unfinished members are cancelled
	CreatedAt time.Time
	OpenUntil *time.Time // then it has failed, unless it was closed before
	EndsBy    *time.Time // then it is cancelled
	FailedAt  *time.Time // when it was found that a member is dead or cancelled
	EndedAt   *time.Time // when it was found that all have ended, the first time
	Reason    string     // why it was cancelled, or that it was never closed
}

// BatchFilter chooses batches, newest first.
type BatchFilter struct {
	States []BatchState // none: all
	Name   string       // only those of this name; empty: any
	Before BatchID      // cursor: only batches made before this one; the zero ID is none
	Limit  int          // 1 to LargestPage; zero means 50
}

// Most is how many batches a page has. It reports what is wrong with the filter.
func (f *BatchFilter) Most() (int, error) {
	if len(f.Name) > longestWord || !storable.IsText(f.Name) {
		return 0, fmt.Errorf("%w: batches named %q: want at most %d bytes of text without NUL", ErrInvalid, storable.Clip(f.Name, 150), longestWord)
	}
	for _, state := range f.States {
		if !slices.Contains(BatchStates(), state) {
			return 0, fmt.Errorf("%w: %v is not the state of a batch", ErrInvalid, state)
		}
	}
	return most(f.Limit, defaultPage, LargestPage)
}

// BatchClose asks for a batch to be closed.
type BatchClose struct {
	ID BatchID
	By string // who asks for it, for the audit log; empty: a program
}

// BatchCancel asks for a batch to be cancelled.
type BatchCancel struct {
	ID     BatchID
	Reason string // shown for its members; empty: "its batch was cancelled"
	By     string // who asks for it, for the audit log; empty: a program
}

// Check reports what is wrong with the request.
func (c *BatchCancel) Check() error {
	if !storable.IsText(c.Reason) || len(c.Reason) > MaxBatchReason {
		return fmt.Errorf("%w: cancel batch %s: the reason has %d bytes: want at most %d of UTF-8", ErrInvalid, c.ID, len(c.Reason), MaxBatchReason)
	}
	return nil
}

// MemberPage is a part of the members of a batch, in the order of their ids.
type MemberPage struct {
	Members []RunOutcome
	Next    RunID // for the next page; the zero ID: that was the last
}

// Batches are counted groups of runs.
type Batches interface {
	// Batch returns a batch, or ErrNotFound.
	Batch(ctx context.Context, id BatchID) (Batch, error)
	// Batches lists batches, newest first.
	Batches(ctx context.Context, filter BatchFilter) ([]Batch, error)
	// Members returns members of a batch after one of them, with their results.
	Members(ctx context.Context, id BatchID, after RunID, limit int) (MemberPage, error)
	// CloseBatch says that no run is added from outside any more. A repeat does nothing. ErrNotFound:
	// there is no such batch.
	CloseBatch(ctx context.Context, closing BatchClose) error
	// CancelBatch closes a batch, refuses further runs, and has releases cancel its unfinished
	// members. One that has ended is left alone. ErrNotFound: there is no such batch.
	CancelBatch(ctx context.Context, cancel BatchCancel) error
}

// BatchWaiter has a handler wait for its batch.
type BatchWaiter interface {
	// AwaitBatch closes a batch that the holder owns, and has the end of the batch noted for the step
	// of this name. It returns the batch. lease.ErrLost: the run is not the claim's. ErrNotFound: the
	// holder has no such batch.
	AwaitBatch(ctx context.Context, holder Holder, id BatchID, name string) (Batch, error)
}

// check reports what is wrong with a batch that a call names.
func (b *NewBatch) check() error {
	if b.Holders {
		return nil
	}
	switch {
	case b.ID == uuid.Nil:
		return errors.New("batch without an id")
	case len(b.Name) > MaxBatchName || !storable.IsText(b.Name) || storable.HasControl(b.Name):
		return fmt.Errorf("batch %s: the name has %d bytes: want at most %d of UTF-8 without control characters", b.ID, len(b.Name), MaxBatchName)
	case b.OpenFor < 0 || b.OpenFor > MaxDelay:
		return fmt.Errorf("batch %q: open for %v: want 0 to %v", b.Name, b.OpenFor, MaxDelay)
	case b.EndsWithin < 0 || b.EndsWithin > MaxDelay:
		return fmt.Errorf("batch %q: ends within %v: want 0 to %v", b.Name, b.EndsWithin, MaxDelay)
	case b.Owned && b.OpenFor > 0:
		return fmt.Errorf("batch %q: a handler's batch is open until the handler waits for it: want no time", b.Name)
	}
	return nil
}

// BatchClosed is the error of a run for a batch to which none is added any more.
func BatchClosed(id BatchID) error {
	return fmt.Errorf("%w: batch %s is closed: make it with Open, or add to it from its members", ErrConflict, id)
}
