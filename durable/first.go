package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/store"
)

// Wait is one of the waits of First.
type Wait struct {
	name  string
	begin func(ctx context.Context, x *execution) (stepping.Wait, error)
}

// WaitInput waits for an input, as Receive does: it is over when the input has come, or when its
// timeout has passed.
func WaitInput(name string, timeout time.Duration) Wait {
	return Wait{name, func(ctx context.Context, x *execution) (stepping.Wait, error) {
		if timeout < 0 {
			return stepping.Wait{}, negativeTimeout(name, timeout)
		}
		return x.book().BeginInput(ctx, name, timeout)
	}}
}

// WaitSleep waits for d to pass, as Run.Sleep does.
func WaitSleep(name string, d time.Duration) Wait {
	return sleeping(store.NewWait{Name: name, Kind: store.StepSleep, For: max(d, 0)})
}

// WaitUntil waits for an instant on the store's clock, as Run.SleepUntil does.
func WaitUntil(name string, t time.Time) Wait {
	return sleeping(store.NewWait{Name: name, Kind: store.StepSleep, Until: t})
}

func sleeping(wait store.NewWait) Wait {
	return Wait{wait.Name, func(ctx context.Context, x *execution) (stepping.Wait, error) {
		return x.book().BeginSleep(ctx, wait)
	}}
}

// WaitCall enqueues a child and waits for its end, as Call does.
func (j ReturningJob[A, R]) WaitCall(name string, args A, options ...Option) Wait {
	return Wait{name, func(ctx context.Context, x *execution) (stepping.Wait, error) {
		return x.beginCall(ctx, name, func() []NewRun { return j.childrenOf(x.run.ID, name, []A{args}, options) })
	}}
}

// First waits until one of several waits is over, and returns the name of the one that was over
// first. It is recorded under name, so every execution gets the same answer. While none is over, the
// run has no slot and no lease: First returns an error, the park, as Sleep does.
//
// Each wait is begun as Receive, Sleep or Call of its name would begin it. First gives no value: call
// that function, with the same name and arguments, for the input, the child's result, or its error.
// The other waits go on, and may be waited for again, in another First too: so a run that waits
// a week for an approval can remind somebody each day. Those that are not are left: a child that
// is not called any more is not cancelled.
//
// If several are over, the earliest counts, by the store's clock.
func First(ctx context.Context, run AnyRun, name string, waits ...Wait) (string, error) {
	text, err := run.underWay().first(ctx, name, waits)
	return decodeStep[string](name, text, err)
}

func (x *execution) first(ctx context.Context, name string, waits []Wait) ([]byte, error) {
	names := map[string]bool{name: true}
	for i := range waits {
		if names[waits[i].name] {
			return nil, fmt.Errorf("%w: first %q: the name %q is used twice: give each wait, and First, its own", ErrInvalid, name, waits[i].name)
		}
		names[waits[i].name] = true
	}
	if len(waits) == 0 {
		return nil, fmt.Errorf("%w: first %q: want at least one wait", ErrInvalid, name)
	}
	known, err := x.book().Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	if known != nil {
		return x.resultOf(*known, name)
	}
	begun := make([]stepping.Wait, len(waits))
	for i := range waits {
		begun[i], err = waits[i].begin(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("first %q: %w", name, err)
		}
	}
	winner, err := x.book().First(ctx, name, begun)
	if err != nil {
		return nil, err
	}
	record, err := x.recordValue(ctx, store.NewStep{Name: name, Kind: store.StepDone}, winner)
	if err != nil {
		return nil, err
	}
	return x.resultOf(record, name)
}

// beginCall begins to wait for a child as Call does, but does not wait for its end.
func (x *execution) beginCall(ctx context.Context, name string, build func() []NewRun) (stepping.Wait, error) {
	wait := stepping.Wait{Name: name, Kind: store.StepChildren}
	known, err := x.book().Recorded(ctx, name)
	if err == nil && known == nil {
		known, err = x.enqueueChildren(ctx, name, 1, build)
	}
	if err != nil {
		return wait, err
	}
	switch known.Kind {
	case store.StepDone, store.StepFailed:
		wait.Over, wait.At = true, known.At
		return wait, nil
	case store.StepChildren:
	default:
		return wait, notACall(name, known.Kind)
	}
	if known.Tries != 1 {
		return wait, otherChildren(name, known.Tries, 1)
	}
	outcomes, err := x.outcomes(ctx, childIDs(x.run.ID, name, 1))
	if err != nil {
		return wait, fmt.Errorf("call %q: %w", name, err)
	}
	wait.Over = !outcomes[0].Found || outcomes[0].State.Terminal()
	switch {
	case outcomes[0].Found:
		wait.At = outcomes[0].FinishedAt
	case wait.Over: // it was deleted, nobody knows when
		wait.At = x.book().Now()
	}
	return wait, nil
}
