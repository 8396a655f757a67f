package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

var errExited = errors.New("handler exited: runtime.Goexit")

// perform executes the handler and ends the run, whatever the handler does.
func (x *execution) perform() {
	if x.claim.ctx.Err() != nil { // lost or draining before it began
		x.handBack()
		return
	}
	ctx, stop := x.context()
	defer x.cancel(nil)
	if stop != nil {
		defer stop()
	}
	x.begun.Store(true)
	if reason := x.cancelReason.Load(); reason != nil {
		x.end(store.Outcome{Kind: store.Cancellation, Error: *reason})
		return
	}
	if timeout := x.run.Timeout; timeout > 0 {
		defer afterStanding(timeout, x.w.config.CancelGrace, x.giveUp).stop()
	}
	failure := failure{err: errExited}
	call, observed := ctx, (func(store.Outcome))(nil)
	began := time.Now() // not Elapsed, which makes a system call each time
	x.counts.Begun(began.Sub(x.run.DueAt))
	defer func() { // also runs on Goexit
		var o store.Outcome
		took, decided := time.Since(began), false
		defer func() { // even when a method of the user's error exits too
			if !decided {
				o = x.fallback()
			}
			o.Took = took
			x.end(o)
		}()
		o = x.outcome(ctx, failure)
		o.Took, decided = took, true
		x.counts.Ended(took)
		switch {
		case observed == nil:
		case failure.err == nil && o.Kind != store.Success: // CompleteIn, and the store has yet to answer
			observed(store.Outcome{Kind: store.Success})
		default:
			observed(o)
		}
	}()
	if x.w.config.Hooks.Execute != nil {
		call, observed = x.observeExecute(ctx)
	}
	if x.w.debug() {
		x.logger().Debug("run started", "event", "run.started", "fence", x.run.Fence)
	}
	failure = x.protect(call)
}

// context is the handler's: it ends with lease.ErrLost, ErrDraining,
// ErrCancelled or ErrTimeout as its cause, and when the handler has returned.
// Only a run with a timeout needs a second context, and a stop, for it.
func (x *execution) context() (ctx context.Context, stop context.CancelFunc) {
	ctx, x.cancel = context.WithCancelCause(x.claim.ctx)
	if x.run.Timeout == 0 {
		return ctx, nil
	}
	return context.WithTimeoutCause(ctx, x.run.Timeout, ErrTimeout)
}

// failure is how a call of a handler went wrong; the zero value: it did not.
type failure struct {
	err   error
	stack string // of a panic
}

// protect calls the handler and turns a panic into a failure.
func (x *execution) protect(ctx context.Context) (f failure) {
	defer func() {
		if value := recover(); value != nil {
			f = failure{err: fmt.Errorf("panic: %v", value), stack: string(debug.Stack())}
		}
	}()
	if len(x.w.config.Middleware) > 0 {
		return failure{err: x.withMiddleware(ctx, 0)}
	}
	return failure{err: x.call(ctx, x)}
}

// outcome decides what a returned handler means.
func (x *execution) outcome(ctx context.Context, f failure) store.Outcome {
	if f.err == nil && x.verifiesContent() {
		f.err = errUncommitted // or it has landed: the store's verdict says
	}
	if park := x.begunBook().Parked(); park != nil && stepping.ParkedAt(f.err) == nil {
		if f.err == nil {
			f.err = Permanent(stepping.IgnoredPark(park, nil)) // it would only do so again
		} else {
			f.err = stepping.IgnoredPark(park, f.err)
		}
	}
	if f.err == nil {
		x.mu.Lock()
		result := x.result
		x.mu.Unlock()
		return store.Outcome{Kind: store.Success, Result: result, Log: x.logText(store.Success)}
	}
	x.keepFailure(f.err)
	cause := context.Cause(ctx)
	asked := askedFor(f.err)
	x.permanent = asked != nil && asked.kind == store.Death
	if reason := x.cancelReason.Load(); reason != nil && !lostOrDraining(cause) {
		o := outcomeCancelled(f.err, *reason)
		o.Stack, o.Log = storable.Text(f.stack, store.MaxErrorSize), x.logText(o.Kind)
		return o
	}
	o := decideOutcome(asked, f.err, cause, x.charged(), x.retry)
	if o.Kind == store.Snoozed && stepping.ParkedAt(f.err) != nil {
		return store.Outcome{Kind: store.Snoozed, After: x.book().After()}
	}
	if o.Kind.Recorded() {
		o.Error, o.Stack = storable.Text(errorText(f.err), store.MaxErrorSize), storable.Text(f.stack, store.MaxErrorSize)
		o.Log = x.logText(o.Kind)
	}
	o.Unbegun = o.Kind == store.Misfit
	return o
}

// OutcomeOf returns what happens to an attempt that ends with err, as the worker will decide
// it, for middleware: store.Success, Failure, Death (a failed attempt, and the run is dead),
// Cancellation, Snoozed, Misfit (its args could not be read, and it does not count), or
// HandedBack, when the attempt was interrupted by a drain or the loss of its lease and does not
// count. ctx and run are what the middleware was given. A
// handler that has called CompleteIn has succeeded if its commit took effect, whatever it
// returns: only the hook RunSettled knows that.
func OutcomeOf(ctx context.Context, run RunInfo, err error) store.OutcomeKind {
	if err == nil {
		return store.Success
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrCancelled) {
		return outcomeCancelled(err, "").Kind
	}
	return kindOf(askedFor(err), cause, run.Attempt, run.MaxAttempts)
}

// kindOf is the policy of outcomes: what the handler asked for counts first, then an
// interruption that was not its fault, then retries.
func kindOf(asked *endingError, cause error, attempt, maxAttempts int) store.OutcomeKind {
	switch {
	case asked != nil && asked.kind != store.Failure:
		return asked.kind
	case lostOrDraining(cause):
		return store.HandedBack
	case attempt >= maxAttempts:
		return store.Death
	default:
		return store.Failure
	}
}

// decideOutcome is kindOf with when the run is due again.
func decideOutcome(asked *endingError, err, cause error, run *store.ClaimedRun, retry RetryPolicy) store.Outcome {
	o := store.Outcome{Kind: kindOf(asked, cause, run.Attempt, run.MaxAttempts)}
	switch {
	case asked != nil && asked.kind == o.Kind && o.Kind != store.Failure:
		o.After = asked.after
	case o.Kind != store.Failure:
	case asked != nil:
		o.After = min(asked.after, store.MaxDelay)
	default:
		o.After = min(max(retryDelay(retry, run.Attempt, err), 0), store.MaxDelay)
	}
	return o
}

// fallback is the outcome when none of the user's code can be asked.
func (x *execution) fallback() store.Outcome {
	o := decideOutcome(nil, errExited, nil, x.run, Fixed(unknownDelay))
	o.Error = errExited.Error()
	return o
}

// unknownDelay is used where a retry policy gives no delay.
const unknownDelay = time.Minute

// askedFor finds what a handler asked for in its error. Errors are of the
// user's own types, whose methods must not take the worker down.
func askedFor(err error) (asked *endingError) {
	defer func() {
		if recover() != nil {
			asked = nil
		}
	}()
	if stepping.ParkedAt(err) != nil { // whatever is around it
		return &endingError{kind: store.Snoozed, err: err}
	}
	errors.As(err, &asked)
	if asked == nil && Final(err) { // it would only come again
		return &endingError{kind: store.Death, err: err}
	}
	return asked
}

// retryDelay asks a policy that may be the user's own; one that panics must
// not take the worker down.
func retryDelay(retry RetryPolicy, attempt int, err error) (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = unknownDelay
		}
	}()
	return retry.Delay(attempt, err)
}

// handBack ends a run that has not begun.
func (x *execution) handBack() { x.end(store.Outcome{Kind: store.HandedBack, Unbegun: true}) }

// end settles the run and gives its slot back, unless that has been done.
func (x *execution) end(o store.Outcome) {
	x.w.inFlight.ending.Add(1)
	x.observeInterrupted(o.Kind)
	x.returned.Store(true)
	x.run.Args = nil // the others of its claim may keep the execution in memory for long
	x.endReports()
	inTime := x.resolution.CompareAndSwap(unresolved, resolvedInTime)
	if !inTime && x.resolution.Load() == resolvedTimeout {
		x.logger().Warn("an abandoned handler has returned; its outcome is dropped", "event", "run.returned_late", "outcome", o.Kind.String())
	} else {
		x.logEnd(o)
		x.w.settler.add(x, o)
	}
	if inTime || !x.slotGone {
		x.freeSlot()
	} else {
		x.w.stuck.Add(-1)
	}
	x.w.inFlight.ending.Add(-1)
	x.w.inFlight.returned(1)
	x.w.config.Process.returned(x.w, 1)
}

func (x *execution) logEnd(o store.Outcome) {
	if !x.verifies() { // else when the store has answered
		x.logOutcome(o)
	}
}

func (x *execution) logOutcome(o store.Outcome) {
	switch o.Kind {
	case store.Failure:
		x.logger().Warn("attempt failed, will be retried", "event", "run.retried", "after", o.After.String(), "error", storable.Clip(o.Error, 1000))
	case store.Death:
		if x.permanent {
			x.logger().Warn("run is dead: its handler has ended it", "event", "run.ended_by_handler", "error", storable.Clip(o.Error, 1000))
		} else {
			x.logger().Error("run is dead", "event", "run.dead", "error", storable.Clip(o.Error, 1000))
		}
	case store.Misfit:
		x.logger().Warn("the args do not fit this program; the run goes back to all workers", "event", "run.misfit", "after", o.After.String(), "error", storable.Clip(o.Error, 1000))
	case store.HandedBack:
		x.logger().Info("run handed back", "event", "run.handed_back")
	default:
		if x.w.debug() {
			x.logDebug(o.Kind)
		}
	}
}

func (x *execution) logDebug(kind store.OutcomeKind) {
	parks := x.parks(kind)
	if len(parks) == 0 {
		x.logger().Debug("run ended", "event", "run.ended", "outcome", kind.String())
		return
	}
	waits := make([]string, len(parks))
	for i := range parks {
		waits[i] = parks[i].Kind.String() + ": " + parks[i].Step
	}
	x.logger().Debug("run is put back until a wait is over", "event", "run.parked", "waits", waits)
}
