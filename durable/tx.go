package durable

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// errUncommitted is why an attempt failed whose completion is not there.
var errUncommitted = errors.New("completed in a transaction that was not committed")

// CompleteIn ends the run as succeeded, with the result set and the lines logged so far, in
// your own transaction: everything else in that transaction then happens exactly once. Make
// it the last statement, then commit, and return nil:
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
// If the run no longer belongs to this claim, CompleteIn returns lease.ErrLost, and you must
// roll the transaction back. After the first call the worker does not end the run as
// succeeded, but only reads what is stored: if the commit took effect, the run has
// succeeded, whatever the handler returned, and a commit whose reply was lost is resolved in
// the same way. If it did not take effect, an error of the handler counts as usual, and nil
// is a failed attempt, "completed in a transaction that was not committed". As long as the
// transaction is open, the worker waits while its heartbeats continue.
//
// A result that you set after the call whose commit takes effect is not stored, and the
// worker logs a warning; lines that you log after it appear only in the worker's log.
func (r *Run[A]) CompleteIn(ctx context.Context, tx Tx) error {
	if err := r.execution.open(ctx); err != nil {
		return err
	}
	return tx.Complete(ctx, r.holder(), r.execution.completing())
}

// Guard locks the run in your own transaction until that transaction ends. No other worker
// gets the run before then, even if the lease is lost. It returns lease.ErrLost if the run no
// longer belongs to this claim. Use it where transactions may take long: without it,
// CompleteIn refuses a transaction that comes too late, and its work is wasted.
func (r *Run[A]) Guard(ctx context.Context, tx Tx) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	return tx.Guard(ctx, r.holder())
}

// Enqueue makes a Run an Enqueuer: it stores the runs, all or none, only while this run still
// belongs to the claim, and returns lease.ErrLost when it does not. The runs are enqueued
// immediately, however this attempt ends; to enqueue them only together with its success use
// the transaction of CompleteIn. While such a transaction is open and has locked the run,
// Enqueue fails with ErrConflict. A call whose reply was lost is repeated, as by
// Client.Enqueue.
func (r *Run[A]) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	if err := r.execution.open(ctx); err != nil {
		return nil, err
	}
	w := r.execution.w
	client := Client{to: underRun{w.store, r.holder()}, hook: w.config.Hooks.Enqueue}
	return client.Enqueue(ctx, runs...)
}

// Send makes a Run a store.Sender, for Job.Send and Job.SendTo: the input is stored only while this
// run still belongs to the claim; otherwise Send returns lease.ErrLost. A handler that is executed
// again sends the same input again, which changes nothing. So send what is recorded, and neither a time
// nor a random value: another value under the same name is ErrConflict. While a transaction of the
// handler's own has locked the run, Send fails with ErrConflict.
func (r *Run[A]) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := r.execution.open(ctx); err != nil {
		return store.SendReceipt{}, err
	}
	input.Under = r.holder()
	return r.execution.w.store.Send(ctx, input)
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

func (r *Run[A]) holder() store.Holder { return r.execution.holder() }

// holder names the run and the claim that it is executed under.
func (x *execution) holder() store.Holder { return store.Holder{Run: x.run.ID, Claim: x.claim.id} }

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

// verifies reports whether the store is asked what happened to the run.
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
		x.logger().Warn("the result set after CompleteIn is not stored: set it earlier", "event", "run.result_ignored")
	case verdict == store.AlreadyApplied && x.w.debug():
		x.logger().Debug("run ended", "event", "run.ended", "outcome", store.Success.String(), "in", "the handler's transaction")
	}
}
