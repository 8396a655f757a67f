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
// When the run is no longer this claim's CompleteIn returns lease.ErrLost, and
// the transaction must be rolled back. From the first call on the worker does
// not end the run as succeeded by itself, it only reads: when the commit has
// landed the run has succeeded, whatever the handler returned, and a commit
// whose answer was lost is resolved in the same way. When it has not landed, an
// error of the handler counts as usual, and nil is a failed attempt, "completed
// in a transaction that was not committed". As long as the transaction is open
// the worker waits with that, under living heartbeats.
//
// A result that is set after the call whose commit lands is not stored, and the
// worker logs a warning; lines that are logged after it are in the worker's log
// alone.
func (r *Run[A]) CompleteIn(ctx context.Context, tx Tx) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	return tx.Complete(ctx, r.holder(), r.execution.completing())
}

// Guard locks the run within a transaction of the handler's own until that
// transaction ends: no other worker is given the run meanwhile, even when the
// lease is lost. It returns lease.ErrLost when the run is not this claim's any
// more. It is for handlers whose transactions may take long; without it CompleteIn
// refuses a transaction that came too late, and its work was in vain.
func (r *Run[A]) Guard(ctx context.Context, tx Tx) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	return tx.Guard(ctx, r.holder())
}

// Enqueue makes a Run an Enqueuer: it stores the runs, all or none, only while
// this run is still the claim's, and returns lease.ErrLost when it is not. The
// runs are enqueued immediately, whatever becomes of this attempt; to enqueue them
// only together with its success use the transaction of CompleteIn. While such a
// transaction is open and has locked the run, Enqueue fails with ErrConflict. Lost
// answers are retried as by Client.Enqueue.
func (r *Run[A]) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	if err := r.execution.over(); err != nil {
		return nil, err
	}
	w := r.execution.w
	return enqueuePersistently(ctx, w.config.Hooks.Enqueue, underRun{w.store, r.holder()}, runs)
}

// underRun enqueues only while a run is its holder's.
type underRun struct {
	store  Store
	holder store.Holder
}

// Enqueue stores runs under the run.
func (u underRun) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	return u.store.EnqueueUnder(ctx, u.holder, runs...)
}

func (r *Run[A]) holder() store.Holder {
	return store.Holder{Run: r.ID, Claim: r.execution.claim.id}
}

// completing notes that the handler completes the run in a transaction of its
// own, even if that is reported as failed, and returns what is stored with it.
func (x *execution) completing() store.Completion {
	log := x.logText(store.Success)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.completedInTx, x.resultAfterComplete = true, false
	return store.Completion{Result: x.result, Log: log}
}

// hasLateResult reports whether a result was set after the last CompleteIn.
func (x *execution) hasLateResult() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.resultAfterComplete
}

// verifies reports whether the store is asked what became of the run.
func (x *execution) verifies() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.completedInTx
}

// verifiesContent is verifies for a handler that has returned nil.
func (x *execution) verifiesContent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.returnedNil = true
	return x.completedInTx
}

// hasReturnedNil reports whether the handler has returned nil.
func (x *execution) hasReturnedNil() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.returnedNil
}

// logVerified logs how an execution ended whose handler has completed it in a
// transaction of its own: only the store's verdict says whether that landed.
func (x *execution) logVerified(o store.Outcome, verdict store.Verdict) {
	switch {
	case verdict == store.Applied:
		x.logOutcome(o)
	case verdict == store.AlreadyApplied && o.Error != "" && !x.hasReturnedNil():
		x.logger().Warn("the handler failed after CompleteIn: the stored outcome is kept, the commit or an earlier write of this failure", "event", "run.completed_despite_error",
			"error", storable.Clip(o.Error, 1000))
	case verdict == store.AlreadyApplied && x.hasLateResult():
		x.logger().Warn("the result that was set after CompleteIn is not stored: set it before", "event", "run.result_ignored")
	case verdict == store.AlreadyApplied && x.w.debug():
		x.logger().Debug("run ended", "event", "run.ended", "outcome", store.Success.String(), "in", "the handler's transaction")
	}
}
