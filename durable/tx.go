package durable

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

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

func (r *Run[A]) holder() store.Holder {
	return store.Holder{Run: r.ID, Claim: r.execution.claim.id}
}

// completing notes that the handler completes the run in a transaction of its
// own, even if it is told that this failed, and returns what is stored with it.
func (x *execution) completing() store.Completion {
	log := x.logText(store.Success)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verify, x.late = true, false
	return store.Completion{Result: x.result, Log: log}
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
func (x *execution) logVerified(o store.Outcome, verdict store.Verdict) {
	switch {
	case verdict == store.Applied:
		x.logOutcome(o)
	case verdict == store.AlreadyApplied && o.Error != "" && !x.isContent():
		x.logger().Warn("the handler failed after CompleteIn: what the store has stands, be it the commit or an earlier write of this failure",
			"error", storable.Clip(o.Error, 1000))
	case verdict == store.AlreadyApplied && x.hasLateResult():
		x.logger().Warn("the result that was set after CompleteIn is not stored: set it before")
	case verdict == store.AlreadyApplied && x.w.debug():
		x.logger().Debug("run ended", "outcome", store.Success.String(), "in", "the handler's transaction")
	}
}
