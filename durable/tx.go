package durable

import (
	"context"
	"errors"
	"fmt"
)

// Tx is a store bound to a transaction of the caller's: what is done through it
// is stored, and seen by others, exactly when the caller commits, and is gone
// when the caller rolls back. Stores make it of their own engine's transaction:
// postgres.Store.WithTx and WithSQLTx, sqlite.Store.WithTx, memory.Store.Begin.
//
// A Tx repeats nothing and ends nothing; begin, commit, rollback and whatever
// the transaction is set to stay the caller's. After an error other than
// ErrInvalid and lease.ErrLost the transaction may be of no use any more, and
// has to be rolled back. Like the transaction itself a Tx is for one goroutine
// at a time.
type Tx interface {
	// Enqueue stores the runs within the transaction. What is due after a while
	// is due so long after this call, however long the transaction goes on.
	Enqueuer
	// Guard locks the holder's run until the transaction ends, so that nobody
	// takes it over meanwhile, even when its lease expires. When the run is not
	// the claim's any more it answers lease.ErrLost.
	Guard(ctx context.Context, holder Holder) error
	// Complete ends the holder's run as succeeded. When the run is not the
	// claim's any more it changes nothing and answers lease.ErrLost; the
	// transaction must then be rolled back. The run stays locked until the
	// transaction ends, so this belongs at its end.
	Complete(ctx context.Context, holder Holder, completion Completion) error
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

// Check refuses with ErrInvalid what not every engine can keep. Stores call it
// before they touch the transaction.
func (c *Completion) Check() error {
	var faults []error
	if c.Result != nil {
		if err := CheckJSON(c.Result); err != nil {
			faults = append(faults, fmt.Errorf("result%w", err))
		}
	}
	if len(c.Log) > MaxLogSize || !isText(c.Log) {
		faults = append(faults, fmt.Errorf("log of %d bytes: want at most %d bytes of text without NUL", len(c.Log), MaxLogSize))
	}
	return invalid("completion", faults)
}

// ClaimEnqueuer takes runs from those who work on a run.
type ClaimEnqueuer interface {
	// EnqueueUnder is Enqueue on condition that the holder's run is running
	// under the holder's claim when the runs are stored; else it stores nothing
	// and answers lease.ErrLost. Whoever takes the run over at that moment waits.
	// It answers ErrConflict, and stores nothing, when somebody else, such as a
	// transaction of the holder's own, keeps the run locked.
	EnqueueUnder(ctx context.Context, holder Holder, runs ...NewRun) ([]Receipt, error)
}

// errUncommitted is why an attempt failed whose completion is not there.
var errUncommitted = errors.New("completed in a transaction that was not committed")

// CompleteIn ends the run as succeeded, with the result set and the lines logged
// so far, within a transaction of the handler's own: what else the transaction
// does is then done exactly once. Make it the last statement, then commit, and return nil:
//
//	tx, err := pool.Begin(ctx)
//	…
//	defer tx.Rollback(ctx)
//	… // the effects, through tx
//	if err := run.CompleteIn(ctx, store.WithTx(tx)); err != nil {
//		return err
//	}
//	return tx.Commit(ctx)
//
// When the run is no longer this claim's CompleteIn answers lease.ErrLost, and
// the transaction must be rolled back. From the first call on the worker does
// not end the run as succeeded by itself, it only looks: when the commit has
// landed the run has succeeded, whatever the handler returned, and a commit
// whose answer was lost is resolved in the same way. When it has not landed, an
// error of the handler counts as usual, and nil is a failed attempt, "completed
// in a transaction that was not committed". As long as the transaction is open
// the worker waits with that, under living heartbeats.
//
// A result that is set after the call whose commit lands is not stored, and the
// worker warns of it; lines that are logged after it are in the worker's log
// alone.
func (r *Run[A]) CompleteIn(ctx context.Context, tx Tx) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	return tx.Complete(ctx, r.holder(), r.execution.completing())
}

// Guard locks the run within a transaction of the handler's own until that
// transaction ends: nobody else is given the run meanwhile, even when the lease
// is lost. It answers lease.ErrLost when the run is not this claim's any more.
// It is for handlers whose transactions may take long; without it CompleteIn
// refuses a transaction that came too late, and its work was in vain.
func (r *Run[A]) Guard(ctx context.Context, tx Tx) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	return tx.Guard(ctx, r.holder())
}

// Enqueue makes a Run an Enqueuer: it stores the runs, all or none, only while
// this run is still the claim's, and answers lease.ErrLost when it is not. They
// are there at once, whatever becomes of this attempt; to have them only
// together with its success enqueue them through the transaction of CompleteIn.
// While such a transaction is open and has locked the run, Enqueue fails with
// ErrConflict. What holds for Client.Enqueue about lost answers holds here.
func (r *Run[A]) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	if err := r.execution.over(); err != nil {
		return nil, err
	}
	w := r.execution.w
	return enqueuePersistently(ctx, w.config.Tracer, runs, func(ctx context.Context, runs []NewRun) ([]Receipt, error) {
		return w.store.EnqueueUnder(ctx, r.holder(), runs...)
	})
}

func (r *Run[A]) holder() Holder {
	return Holder{Run: r.ID, Claim: r.execution.claim.id}
}

// completing notes that the handler completes the run in a transaction of its
// own, even if it is told that this failed, and returns what is stored with it.
func (x *execution) completing() Completion {
	log := x.logText(Success)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verify, x.late = true, false
	return Completion{Result: x.result, Log: log}
}

// hasLateResult tells whether a result was set after the last CompleteIn.
func (x *execution) hasLateResult() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.late
}

// verifies tells whether the store is asked what became of the run.
func (x *execution) verifies() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.verify
}

// verifiesContent is verifies for a handler that has returned nil.
func (x *execution) verifiesContent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.content = true
	return x.verify
}

// isContent tells whether the handler has returned nil.
func (x *execution) isContent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.content
}

// logVerified tells how an execution ended whose handler has completed it in a
// transaction of its own: only the store's verdict says whether that landed.
func (x *execution) logVerified(o Outcome, verdict Verdict) {
	switch {
	case verdict == Accepted:
		x.logOutcome(o)
	case verdict == Landed && o.Error != "" && !x.isContent():
		x.logger().Warn("the handler failed after CompleteIn: what the store has stands, be it the commit or an earlier write of this failure",
			"error", clip(o.Error, 1000))
	case verdict == Landed && x.hasLateResult():
		x.logger().Warn("the result that was set after CompleteIn is not stored: set it before")
	case verdict == Landed && x.w.debug():
		x.logger().Debug("run ended", "outcome", Success.String(), "in", "the handler's transaction")
	}
}
