package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/store"
)

// AnyRun is the Run of a handler, of whatever job.
type AnyRun interface {
	// executing is the execution that the run belongs to.
	executing() *execution
}

func (r *Run[A]) executing() *execution { return r.execution }

// book returns the execution's book of steps, created on first use.
func (x *execution) book() *stepping.Book {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.steps == nil {
		x.steps = stepping.NewBook(x.w.recorder, stepsOf{x})
	}
	return x.steps
}

// begunBook returns the execution's book; nil: the handler has recorded nothing.
func (x *execution) begunBook() *stepping.Book {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.steps
}

// open returns why the handler may not act in the branch of ctx.
func (x *execution) open(ctx context.Context) error {
	if err := x.over(); err != nil {
		return err
	}
	return x.begunBook().Open(ctx)
}

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
// An error that Permanent has made is stored at once, and returned as a *StepError in this and
// every later execution.
//
// The other errors are a park (return it), lease.ErrLost, ErrConflict while another transaction
// has locked the run, ErrInvalid for a name or a result that cannot be stored, and the store's.
// Bounds: store.MaxSteps steps of a run, store.MaxStepSize bytes each, store.MaxStepsSize together.
func Step[R any](ctx context.Context, run AnyRun, name string, do func(ctx context.Context) (R, error), options ...StepOption) (R, error) {
	text, err := run.executing().step(ctx, name, options, func(ctx context.Context) ([]byte, error) {
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
	text, err := run.executing().stepIn(ctx, tx, name, func(ctx context.Context) ([]byte, error) {
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
		x := run.executing() // the reply to the commit may be lost: the next try reads the step
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
// go on with it. Where the step of one of the names old is recorded, which the handler had before
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

// StepOption changes how a step is executed.
type StepOption func(*stepPolicy)

// stepPolicy is what options add up to.
type stepPolicy struct {
	attempts int // zero: the run's own count
	retry    RetryPolicy
	timeout  time.Duration
	aliases  []string
}

// StepAttempts gives the step n attempts of its own. Between them the run is put back by policy,
// or by Exponential(time.Second, time.Minute) with jitter, without spending an attempt of the run.
// After the last the error itself is stored: every execution gets the same *StepError.
func StepAttempts(n int, policy ...RetryPolicy) StepOption {
	return func(p *stepPolicy) {
		p.attempts, p.retry = n, Exponential(time.Second, time.Minute).WithJitter(0.2)
		for _, given := range policy {
			p.retry = given
		}
	}
}

// StepTimeout bounds one try of the step: its ctx ends with ErrTimeout as the cause.
func StepTimeout(d time.Duration) StepOption { return func(p *stepPolicy) { p.timeout = d } }

// StepAlias gives a step its earlier names: a result that is stored under one of them counts.
func StepAlias(names ...string) StepOption {
	return func(p *stepPolicy) { p.aliases = append(p.aliases, names...) }
}

// EachStep gives all steps of the job's handlers these options; those of a Step come after them.
func EachStep(options ...StepOption) Option {
	return Option{"EachStep", onlyJob, func(p *policy) { p.steps = append(p.steps, options...) }}
}

// StepError says that a step has failed for good. It is stored with the run, so every execution
// gets the same one; it does not wrap the error that do returned. A handler that returns it makes
// the run dead, as it would only come again. A retry of the dead run forgets it, unless a later
// step was recorded.
type StepError struct {
	Name     string
	Attempts int    // that have failed
	Text     string // of the last error
	Code     string // of the last error, if it had a method Code() string
}

// Error names the step and repeats the text.
func (e *StepError) Error() string { return fmt.Sprintf("step %q: %s", e.Name, e.Text) }

// Final reports whether an error is recorded for good, so that every later execution gets it again:
// that of a step, or an input that did not come. It is false for a park. A handler compensates
// where it is true, and nowhere else.
func Final(err error) bool {
	if stepping.ParkedAt(err) != nil {
		return false
	}
	_, failed := errors.AsType[*StepError](err)
	return failed || errors.Is(err, ErrNoInput)
}

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

// unstorableError is not an error of do: no try of the step has failed.
type unstorableError struct{ error }

// Unwrap returns what is wrong.
func (e *unstorableError) Unwrap() error { return e.error }
