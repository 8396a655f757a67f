package store

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Tx is a store bound to the caller's transaction: what is done through it
// is stored, and seen by others, exactly when the caller commits, and is gone
// when the caller rolls back. Stores make it of their own engine's transaction:
// postgres.Store.WithTx and WithSQLTx, sqlite.Store.WithTx, memory.Store.Begin.
//
// A Tx repeats nothing and ends nothing: begin, commit, rollback and the settings of
// the transaction stay with the caller. After an error other than ErrInvalid and
// lease.ErrLost, the transaction may be unusable: roll it back. Like the transaction
// itself, a Tx is for one goroutine at a time.
type Tx interface {
	// Taker stores runs, inputs and schedules within the transaction. The delay of a run counts
	// from the call, however long the transaction takes. A schedule is planned from the call on,
	// and workers see it when they next look, within their poll interval.
	Taker
	TxStepper
	TxReader
	// Guard locks the holder's run until the transaction ends, so that no other
	// worker can take it over before then, even if its lease expires. If the run no
	// longer belongs to the claim, it returns lease.ErrLost.
	Guard(ctx context.Context, holder Holder) error
	// Complete ends the holder's run as succeeded. If the run no longer belongs to
	// the claim, it changes nothing and returns lease.ErrLost: roll the transaction
	// back. The run stays locked until the transaction ends, so call Complete at its
	// end.
	Complete(ctx context.Context, holder Holder, completion Completion) error
}

// Taker takes what programs hand over to workers. A Client, a Store and a Tx are Takers.
type Taker interface {
	Enqueuer
	Sender
	Scheduler
}

// TxReader reads runs as a transaction sees them.
type TxReader interface {
	// Run is Inspector.Run as the transaction sees it.
	Run(ctx context.Context, id RunID) (Record, error)
	// Runs is Inspector.Runs as the transaction sees it.
	Runs(ctx context.Context, filter Filter) (Page, error)
}

// Completion is what is stored with a run that is completed in a transaction.
type Completion struct {
	Result []byte // JSON; nil: none
	Log    string // lines that the handler logged, at most MaxLogSize bytes of text; empty: none
}

// Check refuses with ErrInvalid what some engine cannot store. Stores call it
// before they touch the transaction.
func (c *Completion) Check() error {
	var faults []error
	if c.Result != nil {
		if err := CheckJSON(c.Result); err != nil {
			faults = append(faults, fmt.Errorf("result%w", err))
		}
	}
	if len(c.Log) > MaxLogSize || !storable.IsText(c.Log) {
		faults = append(faults, fmt.Errorf("log of %d bytes: want at most %d bytes of text without NUL", len(c.Log), MaxLogSize))
	}
	return invalid("completion", faults)
}

// ClaimEnqueuer takes runs from those who work on a run.
type ClaimEnqueuer interface {
	// EnqueueUnder is Enqueue on condition that the holder's run is running
	// under the holder's claim when the runs are stored; otherwise it stores nothing
	// and returns lease.ErrLost. A concurrent takeover of the run waits.
	// It returns ErrConflict, and stores nothing, if another transaction, such
	// as the holder's own, keeps the run locked.
	EnqueueUnder(ctx context.Context, holder Holder, runs ...NewRun) ([]Receipt, error)
}
