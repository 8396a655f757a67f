package durabletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// CrashAfterEachStep finds out whether handlers survive the death of their process at each step. It
// plays the scenario without a crash first, and then once for each step that was stored in it, sleeps
// and waits included: right after that step is stored, the process of its worker dies, and another
// takes over immediately, with the same configuration. Each time the scenario must come to the
// same end: the same runs in the same states, with the same results and errors, and the same
// effects, as Kit.Effect has noted them.
//
//	func TestAnOrderSurvivesCrashes(t *testing.T) {
//		durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
//			cards := fakeCards{kit} // calls kit.Effect(ctx, "charge 7")
//			kit.Worker(func(w *durable.Worker) { durable.Register(w, order(), fulfil(cards)) })
//			_, err := order().Enqueue(t.Context(), kit.Client, Order{ID: 7})
//			require.NoError(t, err)
//			kit.RunAll()
//		})
//	}
//
// It finds effects that are outside of steps, what a handler keeps in memory from one step to
// another, and names of steps that change. It does not find an effect that a step makes twice because
// the process dies before its result is stored: for that there is Run.StepKey. In branches of
// durable.Parallel that is what happens to a step that executes beside the one that was stored: give
// branches no effects in a scenario, or one branch at a time.
//
// Each time the scenario is a subtest with a kit of its own, as in a test of Run.
func CrashAfterEachStep(t *testing.T, scenario func(t *testing.T, kit *Kit)) {
	t.Helper()
	var (
		without end
		steps   []string
	)
	play := func(name string, crashAt int, after func(t *testing.T, kit *Kit)) bool {
		return t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, kit *Kit) {
				if crashAt > 0 {
					kit.CrashAfter(crashAt)
				}
				scenario(t, kit)
				after(t, kit)
			})
		})
	}
	if !play("without a crash", 0, func(_ *testing.T, kit *Kit) { without, steps = kit.reached() }) {
		return
	}
	if len(steps) == 0 {
		t.Fatalf("no step was stored, so there is nothing to crash after")
	}
	for i, step := range steps {
		play(fmt.Sprintf("crash after %d %s", i+1, step), i+1, func(t *testing.T, kit *Kit) {
			t.Helper()
			with, stored := kit.reached()
			if len(stored) <= i {
				t.Fatalf("only %d steps were stored, without a crash %d: %s", len(stored), len(steps), strings.Join(stored, ", "))
			}
			if faults := without.against(with); len(faults) > 0 {
				t.Errorf("a crash after the step %q was stored makes a difference:\n  %s", stored[i], strings.Join(faults, "\n  "))
			}
		})
	}
}

// CrashAfter has the process of a worker die right after the n-th step from now is stored: a
// result, a failure for good or a try, a sleep, a wait, or its end without an input. Handlers of that
// worker do not continue: the one that stored the step is stopped where it is, without an error,
// and the contexts of the others end. Its leases end immediately, the crash is counted, and a worker with
// the same configuration takes over. Steps that were stored with the n-th in one write are stored too.
func (k *Kit) CrashAfter(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crashAt = len(k.stored) + max(n, 1)
}

// Effect notes what a handler, or a fake that it calls, does to the world: CrashAfterEachStep
// compares what was noted, and CheckParks finds what comes after a park. ctx is the handler's. What
// the handler of a killed or crashed worker still does is not noted.
func (k *Kit) Effect(ctx context.Context, what string) {
	if w := workerOf(ctx); w != nil && w.isGone() {
		return
	}
	watchFor(ctx, fmt.Sprintf("the effect %q", what))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.effects = append(k.effects, what)
}

// Effects returns what Effect has noted, in order.
func (k *Kit) Effects() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.effects)
}

// isGone reports whether the worker's process has ended.
func (w *Worker) isGone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link == dead || w.link == gone
}

// hasStored notes steps that are stored. If the worker is to crash now, it does not return before
// the test ends.
func (w *Worker) hasStored(ctx context.Context, names ...string) error {
	k := w.kit
	k.mu.Lock()
	k.stored = append(k.stored, names...)
	crashes := k.crashAt > 0 && len(k.stored) >= k.crashAt
	if crashes {
		k.crashAt = 0
	}
	k.mu.Unlock()
	if !crashes {
		return nil
	}
	if err := w.crash(); err != nil {
		return err
	}
	return w.pass(ctx)
}

// crash ends the worker's process and its leases, and starts another. A handler calls it, while
// the test may be waiting for it.
func (w *Worker) crash() error {
	ctx := context.Background()
	w.mu.Lock()
	w.link, w.crashed = gone, true
	close(w.changed)
	w.changed = make(chan struct{})
	claims := slices.Clone(w.claims)
	w.mu.Unlock()
	w.worker.StopNow()
	w.cancel()
	if _, err := w.kit.Store.Renew(ctx, claims, 0); err != nil {
		return err
	}
	if _, err := w.kit.Store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: store.MostCrashes, Limit: len(claims)}); err != nil {
		return err
	}
	w.kit.launch(w.configure, w.changes, w.schedules)
	w.kit.poke()
	return nil
}

// livingLog drops what a worker logs whose process has crashed.
type livingLog struct {
	slog.Handler

	w *Worker
}

// Handle drops what comes after a crash.
func (l livingLog) Handle(ctx context.Context, record slog.Record) error {
	l.w.mu.Lock()
	crashed := l.w.crashed
	l.w.mu.Unlock()
	if crashed {
		return nil
	}
	return l.Handler.Handle(ctx, record)
}

// WithAttrs keeps the filter.
func (l livingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return livingLog{l.Handler.WithAttrs(attrs), l.w}
}

// WithGroup keeps the filter.
func (l livingLog) WithGroup(name string) slog.Handler {
	return livingLog{l.Handler.WithGroup(name), l.w}
}

// end is what a scenario has come to.
type end struct{ runs, effects []string }

// reached returns what the scenario has come to, and the steps that were stored.
func (k *Kit) reached() (end, []string) {
	k.t.Helper()
	var e end
	for _, r := range list(k.t, k.Store, durable.Filter{}) {
		text := fmt.Sprintf("job=%s args=%s %v", r.Job, r.Args, r.State)
		if r.Result != nil {
			text += " result=" + string(r.Result)
		}
		if r.State.Terminal() && r.Error != nil {
			text += fmt.Sprintf(" error=%q", *r.Error)
		}
		e.runs = append(e.runs, text)
	}
	e.effects = k.Effects()
	k.mu.Lock()
	defer k.mu.Unlock()
	return e, slices.Clone(k.stored)
}

// against says what differs in another end.
func (e end) against(other end) []string {
	return append(differences("run", e.runs, other.runs), differences("effect", e.effects, other.effects)...)
}

// differences compares how often each text is there.
func differences(what string, without, with []string) (found []string) {
	count := map[string][2]int{}
	for _, text := range without {
		count[text] = [2]int{count[text][0] + 1, 0}
	}
	for _, text := range with {
		count[text] = [2]int{count[text][0], count[text][1] + 1}
	}
	for text, n := range count {
		if n[0] != n[1] {
			found = append(found, fmt.Sprintf("%s %s: %d instead of %d", what, text, n[1], n[0]))
		}
	}
	slices.Sort(found)
	return found
}
