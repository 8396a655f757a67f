package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/store"
)

// Sleep puts the run back for d, without a slot and without a lease, and spends no attempt. The
// instant is stored at the first call; a restart, a deploy or a retry in between changes nothing.
// Until then Sleep returns an error, the park: return it, and the handler is executed again from
// its beginning when the time is over; Sleep then returns nil. After a park nothing more happens
// in the handler: every later step, sleep, enqueue or send returns the same error and has no
// effect. Zero and less is no sleep.
func (r *Run[A]) Sleep(ctx context.Context, name string, d time.Duration) error {
	return r.execution.book().Sleep(ctx, store.NewWait{Name: name, Kind: store.StepSleep, For: max(d, 0)})
}

// SleepUntil is Sleep until an instant on the store's clock.
func (r *Run[A]) SleepUntil(ctx context.Context, name string, t time.Time) error {
	return r.execution.book().Sleep(ctx, store.NewWait{Name: name, Kind: store.StepSleep, Until: t})
}

// Receive waits until an input of this name is sent to the run, by Job.Send, SQL, the command
// line, the API or a person on a page, and returns its value; the input may have come before.
// While it waits, the run has no slot and no lease: Receive returns an error, the park, as Sleep
// does. The deadline is stored at the first call, on the store's clock. When it passes first,
// Receive returns ErrNoInput, in every execution, and an input of this name is refused from then
// on. Timeout zero waits forever. A value that is no T is an error that the run's retry policy
// decides on.
func Receive[T any](ctx context.Context, run AnyRun, name string, timeout time.Duration) (T, error) {
	x := run.underWay()
	var value T
	if timeout < 0 {
		return value, negativeTimeout(name, timeout)
	}
	input, err := x.book().Receive(ctx, name, timeout)
	switch {
	case err != nil:
		return value, err
	case input.GaveUp:
		return value, fmt.Errorf("input %q: %w", name, ErrNoInput)
	}
	text, err := x.unsealNamed(InputPart, name, input.Value)
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err != nil {
		return value, fmt.Errorf("input %q is no %T: %w", name, value, err)
	}
	return value, nil
}

func negativeTimeout(name string, timeout time.Duration) error {
	return fmt.Errorf("%w: receive %q: timeout %v: want 0 for none, or more", ErrInvalid, name, timeout)
}

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
// The other waits continue, and may be waited for again, in another First too: so a run that waits
// a week for an approval can send a reminder each day. Those that are not are left: a child that
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
		known, err = x.startChildren(ctx, name, build())
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
	outcomes, err := x.book().Outcomes(ctx, childIDs(x.run.ID, name, 1))
	if err != nil {
		return wait, fmt.Errorf("call %q: %w", name, err)
	}
	wait.Over = !outcomes[0].Found || outcomes[0].State.Terminal()
	switch {
	case outcomes[0].Found:
		wait.At = outcomes[0].FinishedAt
	case wait.Over: // it was deleted; when is not known
		wait.At = x.book().Now()
	}
	return wait, nil
}

// Parallel executes functions concurrently and waits for all of them. Each is a branch of the
// handler by itself: when one is parked, at a Receive for instance, the others continue to their ends
// before the run is put back. Steps in different functions need different names, as everywhere.
//
// The error is that of the first function, in the order of the arguments, that failed; if none
// did, the park of one that was parked. A function that panics makes Parallel panic when all
// have returned.
func Parallel(ctx context.Context, run AnyRun, branches ...func(ctx context.Context) error) error {
	return run.underWay().book().Parallel(ctx, branches)
}

// Send sends a value to a run of the job under a name, through a Client, a Store, a store bound to
// your transaction, or the Run of a handler, and makes the run due if it waits for it. The first value of a name counts:
// the same again is no error, another is ErrConflict, and so is one for a run that has ended or
// has given up waiting. A run that does not exist is ErrNotFound.
func (j Job[A]) Send(ctx context.Context, to store.Sender, id RunID, name string, value any) (store.SendReceipt, error) {
	return j.send(ctx, to, store.NewInput{Run: id, Name: name}, value)
}

// SendTo is Send to the unfinished run that holds a unique key of the job: who sends often knows
// the order, and not the run.
func (j Job[A]) SendTo(ctx context.Context, to store.Sender, key, name string, value any) (store.SendReceipt, error) {
	return j.send(ctx, to, store.NewInput{Job: j.name, Key: key, Name: name}, value)
}

func (j Job[A]) send(ctx context.Context, to store.Sender, input store.NewInput, value any) (store.SendReceipt, error) {
	if j.fault != nil {
		return store.SendReceipt{}, fmt.Errorf("%w: %w", ErrInvalid, j.fault)
	}
	plain, err := json.Marshal(value)
	if err != nil {
		return store.SendReceipt{}, fmt.Errorf("send %q: %w: %w", input.Name, ErrInvalid, err)
	}
	input.Digest = store.DigestOf(input.Name, plain)
	input.Value, err = seal(j.policy.codec, CodecInfo{Job: j.name, Part: InputPart, Run: input.Run, Name: input.Name}, plain)
	if err != nil {
		return store.SendReceipt{}, fmt.Errorf("send %q: %w: %w", input.Name, ErrInvalid, err)
	}
	return to.Send(ctx, input)
}

// releaseRest is the least pause between two releases, while another process has what is due.
const releaseRest = 5 * time.Millisecond

// releaseLoop releases runs until ctx ends: when a signal says that notices are left, when a run
// of this worker has begun to wait, when the next notice is due, and at least as often as expired
// leases are looked for.
func (w *Worker) releaseLoop(ctx context.Context) {
	every := min(w.config.PollInterval, w.config.Terms.Duration/4)
	pause := w.jittered(every)
	for w.sleepUnless(ctx, pause, w.releaser.Noticed()) {
		pause = w.jittered(every)
		if w.unreachable() {
			continue
		}
		looks := w.releaser.Take()
		result, err := w.release(ctx, looks)
		switch {
		case err != nil:
			w.warn(ctx, "release.failed", "releasing runs failed, will be retried", err)
			w.releaser.Look(looks)
			w.sleep(ctx, w.jittered(100*time.Millisecond))
		case result.Taken >= stepping.MostTaken || len(looks) == stepping.MostTaken:
			pause = 0
		case result.Next >= 0:
			pause = min(pause, max(result.Next, releaseRest))
		}
	}
}

func (w *Worker) release(ctx context.Context, looks []store.Look) (store.ReleaseResult, error) {
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	result, err := w.store.Release(bounded, store.ReleaseRequest{Look: looks, Limit: stepping.MostTaken})
	w.observeCall(err)
	w.config.Tally.Released(result.Released)
	if result.Released > 0 && w.debug() {
		w.config.Logger.Debug("runs are due whose waits are over", "event", "run.released", "runs", result.Released)
	}
	return result, err
}
