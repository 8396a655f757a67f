package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// AnyRun is the Run of a handler, of whatever job.
type AnyRun interface {
	// underWay is the execution that the run belongs to.
	underWay() *execution
}

func (r *Run[A]) underWay() *execution { return r.execution }

// Step executes do and stores its result under name. When the handler is executed again, after a
// failure, a crash, a sleep or a wait, Step returns the stored result and does not call do. The
// result, in the first execution too, is what was stored: encoded as JSON and decoded again.
//
// A step is known by its name alone, so steps may be added, removed and moved between versions of
// the handler; see StepAlias for another name. A name is used once in an execution. Steps may be
// called from any goroutine of the handler, which has to wait for it.
//
// If the process dies after do and before its result is stored, do is executed again. For an
// effect that must not happen twice pass StepKey to a service that recognises repeats, or use
// StepIn for one in the store's own database. Code between steps is executed each time.
//
// An error of do is not stored: Step returns it, and if the handler does too, the attempt has
// failed and the run's retry policy decides. With StepAttempts the step has attempts of its own.
// An error that Permanent has made is stored immediately, and returned as a *StepError in this and
// every later execution.
//
// The other errors are a park (return it), lease.ErrLost, ErrConflict while another transaction
// has locked the run, ErrInvalid for a name or a result that cannot be stored, and the store's.
// Bounds: store.MaxSteps steps of a run, store.MaxStepSize bytes each, store.MaxStepsSize together.
func Step[R any](ctx context.Context, run AnyRun, name string, do func(ctx context.Context) (R, error), options ...StepOption) (R, error) {
	text, err := run.underWay().step(ctx, name, options, func(ctx context.Context) ([]byte, error) {
		result, err := do(ctx)
		if err != nil {
			return nil, err
		}
		return encodeStep(name, result)
	})
	return decodeStep[R](name, text, err)
}

// StepIn is Step in your own transaction: do makes its effects through it, and the result is
// stored with them, so that both happen exactly once. Commit after it; when StepIn returns an
// error, roll back. It locks the run until the transaction ends, and reads the step in the
// transaction each time, so you may call it again when you repeat the transaction. It does not
// call do, and returns lease.ErrLost, if the run no longer belongs to this attempt.
func StepIn[R any](ctx context.Context, run AnyRun, tx Tx, name string, do func(ctx context.Context) (R, error)) (R, error) {
	text, err := run.underWay().stepIn(ctx, tx, name, func(ctx context.Context) ([]byte, error) {
		result, err := do(ctx)
		if err != nil {
			return nil, err
		}
		return encodeStep(name, result)
	})
	return decodeStep[R](name, text, err)
}

// StepTx is StepIn in a transaction that it begins and commits. A transaction that the database
// asks to be repeated, for a serialization failure or a deadlock, is repeated a few times. When
// the reply to the commit is lost, StepTx reads which way it went. A program gets its transactions
// from its engine, such as postgres.Transacting; a test gets them from durabletest.Transacting.
func StepTx[R, T any](ctx context.Context, run AnyRun, transact store.Transacting[T], name string, do func(ctx context.Context, tx T) (R, error)) (R, error) {
	var result R
	for try := 1; ; try++ {
		failed := false // do itself, or the step
		err := transact(ctx, func(tx T, bound Tx) (err error) {
			result, err = StepIn(ctx, run, bound, name, func(ctx context.Context) (R, error) { return do(ctx, tx) })
			failed = err != nil
			return err
		})
		if err == nil || failed || ctx.Err() != nil || try == stepTxTries {
			return result, err
		}
		x := run.underWay() // the reply to the commit may be lost: the next try reads the step
		x.w.sleep(ctx, x.w.jittered(stepTxPause<<try))
	}
}

// stepTxTries and stepTxPause bound how a transaction of StepTx is repeated.
const (
	stepTxTries = 5
	stepTxPause = 10 * time.Millisecond
)

// Recorded reports whether a result of this name is stored, without executing anything.
func (r *Run[A]) Recorded(ctx context.Context, name string) (bool, error) {
	step, err := r.execution.book().Recorded(ctx, name)
	return err == nil && step != nil && step.Kind == store.StepDone, err
}

// Version returns n, and records it under name: runs that have begun with one version of a handler
// continue with it. Where the step of one of the names old is recorded, which the handler had before
// it asked for the version, it returns 0, and records that.
func (r *Run[A]) Version(ctx context.Context, name string, n int, old ...string) (int, error) {
	return Step(ctx, r, name, func(ctx context.Context) (int, error) {
		for _, name := range old {
			if step, err := r.execution.book().Recorded(ctx, name); err != nil || step != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

// StepKey is the same for every try of the step of this name in this run, and for nothing else.
// Pass it to services that recognise a repeated request.
func (r *Run[A]) StepKey(name string) string { return r.ID.String() + ":" + name }

func encodeStep(name string, result any) ([]byte, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, &unstorableError{fmt.Errorf("step %q: %w: result: %w", name, ErrInvalid, err)}
	}
	return text, nil
}

func decodeStep[R any](name string, text []byte, err error) (result R, _ error) {
	if err != nil || text == nil {
		return result, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, fmt.Errorf("step %q: its stored result is no %T: %w", name, result, err)
	}
	return result, nil
}

// stepsOf is an execution as its book of steps needs it.
type stepsOf struct{ x *execution }

// Holder names the run and the claim.
func (s stepsOf) Holder() store.Holder { return s.x.holder() }

// Gone returns lease.ErrLost once the handler has returned.
func (s stepsOf) Gone() error { return s.x.over() }

// Seal encodes the result of a step.
func (s stepsOf) Seal(name string, value []byte) ([]byte, error) {
	return s.x.sealNamed(StepPart, name, value)
}

// Unseal decodes the result of a step.
func (s stepsOf) Unseal(step *store.StepRecord) ([]byte, error) {
	return s.x.unsealNamed(StepPart, step.Name, step.Value)
}

// Insist makes a call of the store as a checkpoint is stored: a short outage costs no attempt.
func (s stepsOf) Insist(ctx context.Context, once func(context.Context) error) error {
	r := s.x.reporting()
	ctx, cancel := r.bounded(ctx, max(r.w.config.Terms.Duration, r.w.callTimeout()))
	defer cancel()
	failed := func(err error) {
		r.w.warn(r.ctx, "run.steps_failed", "reading or recording the steps of a run failed, will be retried", err)
	}
	return r.sendAgain(ctx, failed, func(ctx context.Context) error {
		if s.x.over() != nil || r.leaseGone(ctx) {
			return lease.ErrLost
		}
		bounded, cancel := r.bounded(ctx, r.w.callTimeout())
		defer cancel()
		return once(bounded)
	})
}

// step returns the stored result of a step, or executes it and stores its result.
func (x *execution) step(ctx context.Context, name string, options []StepOption, do func(context.Context) ([]byte, error)) ([]byte, error) {
	policy := stepPolicy{}
	for _, option := range slices.Concat(x.stepOptions, options) {
		option(&policy)
	}
	if policy.attempts < 0 || policy.attempts > store.MaxStepTries {
		return nil, fmt.Errorf("%w: step %q: %d attempts: want 1 to %d", ErrInvalid, name, policy.attempts, store.MaxStepTries)
	}
	known, err := x.book().Begin(ctx, name, policy.aliases...)
	if err != nil {
		return nil, err
	}
	fresh := store.NewStep{Holder: x.holder(), Name: name, Kind: store.StepDone}
	if known != nil {
		if known.Kind != store.StepTried {
			return x.resultOf(*known, name)
		}
		fresh.Name, fresh.Tries = known.Name, known.Tries
	}
	return x.executeStep(ctx, name, fresh, policy, do)
}

// executeStep executes a step once and stores its result.
func (x *execution) executeStep(ctx context.Context, name string, fresh store.NewStep, policy stepPolicy, do func(context.Context) ([]byte, error)) ([]byte, error) {
	within, ended := x.observeStep(ctx, name, fresh.Tries+1)
	result, failed := observe.StepError, errExitedStep
	defer func() { ended(result, failed) }() // also when do panics
	if !x.claim.hold.Valid() {               // the process was frozen, and another one may have executed the step
		failed = fmt.Errorf("step %q: %w", name, lease.ErrLost)
		return nil, failed
	}
	began := x.w.config.Elapsed()
	value, err := x.tryStep(within, policy, do)
	fresh.Took = x.w.config.Elapsed() - began
	if failed = err; err != nil {
		result, err = x.stepFailed(ctx, fresh, policy, err)
		return nil, err
	}
	if fresh.Value, failed = x.book().Sealed(name, value); failed != nil {
		return nil, failed
	}
	var record store.StepRecord
	if record, failed = x.record(ctx, fresh); failed != nil {
		return nil, failed
	}
	result = observe.StepDone
	return x.resultOf(record, name)
}

var errExitedStep = errors.New("the step has panicked, or ended its goroutine")

// record stores a step that was executed, and counts it.
func (x *execution) record(ctx context.Context, fresh store.NewStep) (store.StepRecord, error) {
	ended := x.w.config.Elapsed()
	record, err := x.book().Record(ctx, fresh)
	if err == nil {
		x.w.config.Tally.StepWritten(x.w.config.Elapsed() - ended)
		x.counts.Stepped(stepResult(fresh.Kind))
	}
	return record, err
}

// stepResult is how a step of a kind that an execution records has ended.
func stepResult(kind store.StepKind) observe.StepResult {
	switch kind {
	case store.StepTried:
		return observe.StepTried
	case store.StepFailed:
		return observe.StepFailed
	default:
		return observe.StepDone
	}
}

// tryStep executes a step once.
func (x *execution) tryStep(ctx context.Context, policy stepPolicy, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if policy.timeout <= 0 {
		return do(ctx)
	}
	within, cancel := context.WithTimeoutCause(ctx, policy.timeout, ErrTimeout)
	defer cancel()
	value, err := do(within)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), ErrTimeout) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return value, err
}

// resultOf is what a recorded step gives to an execution.
func (x *execution) resultOf(step store.StepRecord, name string) ([]byte, error) {
	switch step.Kind {
	case store.StepDone:
		if step.Value == nil {
			return nil, nil
		}
		value, err := x.unsealNamed(StepPart, step.Name, step.Value)
		if err != nil {
			return nil, fmt.Errorf("step %q: %w", name, err)
		}
		return value, nil
	case store.StepFailed:
		return nil, &StepError{Name: name, Attempts: step.Tries, Text: step.Error, Code: step.Code}
	default:
		return nil, fmt.Errorf("%w: step %q is stored as a wait (%s), not as a result: give it another name", ErrInvalid, name, step.Kind)
	}
}

// stepFailed decides what an error of a step means, and what the step returns.
func (x *execution) stepFailed(ctx context.Context, fresh store.NewStep, policy stepPolicy, err error) (observe.StepResult, error) {
	asked := askedFor(err)
	unstorable := (*unstorableError)(nil)
	switch {
	case errors.As(err, &unstorable):
		return observe.StepError, unstorable.error
	case ctx.Err() != nil, stepping.ParkedAt(err) != nil, Final(err): // interrupted; or of a step within it
		return observe.StepError, err
	case asked != nil && asked.kind != store.Failure && asked.kind != store.Death,
		policy.attempts == 0 && (asked == nil || asked.kind != store.Death):
		x.counts.Stepped(observe.StepError)
		return observe.StepError, err
	}
	fresh.Tries = min(fresh.Tries+1, store.MaxStepTries)
	fresh.Error, fresh.Code = storable.Text(errorText(err), store.MaxErrorSize), storable.Text(codeOf(err), store.MaxNoteSize)
	if fresh.Kind = store.StepTried; asked != nil && asked.kind == store.Death || fresh.Tries >= policy.attempts {
		fresh.Kind = store.StepFailed
	}
	record, failed := x.record(ctx, fresh)
	if failed != nil {
		return observe.StepError, failed
	}
	if record.Kind != store.StepTried {
		_, err := x.resultOf(record, fresh.Name)
		return observe.StepFailed, err
	}
	delay := min(max(retryDelay(policy.retry, fresh.Tries, err), 0), store.MaxDelay)
	if asked != nil {
		delay = min(asked.after, store.MaxDelay)
	}
	return observe.StepTried, x.book().Park(ctx, fresh.Name, delay)
}

// stepIn is step in a caller's transaction.
func (x *execution) stepIn(ctx context.Context, tx Tx, name string, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckStepName(name); err != nil {
		return nil, fmt.Errorf("%w: step: %w", ErrInvalid, err)
	}
	if err := tx.Guard(ctx, x.holder()); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	known, found, err := tx.RecordedStep(ctx, x.run.ID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("step %q: %w", name, err)
	case found && known.Kind != store.StepTried:
		return x.resultOf(known, name)
	}
	return x.executeStepIn(ctx, tx, name, known.Tries+1, do)
}

// executeStepIn executes a step and stores its result in a caller's transaction.
func (x *execution) executeStepIn(ctx context.Context, tx Tx, name string, try int, do func(context.Context) ([]byte, error)) (value []byte, failed error) {
	within, ended := x.observeStep(ctx, name, try)
	result := observe.StepError
	failed = errExitedStep
	defer func() { ended(result, failed) }() // also when do panics
	began := x.w.config.Elapsed()
	value, failed = do(within)
	if failed != nil {
		x.counts.Stepped(observe.StepError)
		return nil, failed
	}
	fresh := store.NewStep{Holder: x.holder(), Name: name, Kind: store.StepDone, Took: x.w.config.Elapsed() - began}
	if fresh.Value, failed = x.book().Sealed(name, value); failed != nil {
		return nil, failed
	}
	if err := tx.RecordStep(ctx, fresh); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	result = observe.StepDone
	x.counts.Stepped(observe.StepDone)
	return value, nil
}
