package durabletest

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// CheckParks executes a handler from its first wait to its end, once for each time that it is
// parked, and fails the test if the handler does anything after a park but return its error: a step,
// a sleep, a wait, an enqueue or a CompleteIn through its run, an enqueue or a send through Kit.Client, or an
// effect that Kit.Effect notes. It returns the run as it has ended, for the test to look at.
//
// A sleep passes in virtual time. An input is sent when the handler waits for it, if inputs has it
// (see Sent); otherwise its deadline passes. To check both ways, call CheckParks twice.
//
//	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
//		durabletest.CheckParks(kit, onboard(), handler(kit.Client), User{ID: 7}, durabletest.Sent("approved", Approval{By: "eva"}))
//	})
//
// What a step, a sleep or a wait does after a park is nothing, so it is a fault only since it shows that an
// error is ignored. It is seen in the handler itself, and not within a function that durable.Parallel calls;
// the others are seen there too. A goroutine that is no branch of durable.Parallel must not continue after a
// park in another.
func CheckParks[A any](
	kit *Kit, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A, inputs ...Fact,
) durable.Record {
	kit.t.Helper()
	run := job.New(args)
	run.Queue = "parks-" + run.ID.String()
	all := &watch{}
	worker := kit.Worker(func(w *durable.Worker) {
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[A]) error {
			return handler(watchedContext{ctx, &watched{watch: all, run: run, info: run.RunInfo}}, run)
		})
	}, func(c *durable.WorkerConfig) { c.Queues = []durable.Queue{{Name: run.Queue}} })
	if _, err := kit.Client.Enqueue(kit.t.Context(), run); err != nil {
		kit.t.Fatalf("check parks: %v", err)
	}
	send := func(input Fact) {
		if _, err := job.Send(kit.t.Context(), kit.Client, run.ID, input.name, input.value); err != nil {
			kit.t.Fatalf("check parks: send %q: %v", input.name, err)
		}
	}
	parks := kit.passParks(run.ID, inputs, send)
	if err := worker.Stop(); err != nil {
		kit.t.Fatalf("check parks: %v", err)
	}
	record, err := kit.Store.Run(kit.t.Context(), run.ID)
	if err != nil {
		kit.t.Fatalf("check parks: %v", err)
	}
	faults := all.read()
	for i := range record.Attempts {
		if text := record.Attempts[i].Error; text != nil && strings.HasPrefix(*text, ignoredPark) {
			faults = append(faults, *text)
		}
	}
	switch {
	case len(faults) > 0:
		kit.t.Errorf("after a park a handler does nothing but return its error:\n  %s", strings.Join(faults, "\n  "))
	case parks == 0:
		kit.t.Errorf("the handler was not parked, so nothing was checked: it is %v", record.State)
	}
	return record
}

// ignoredPark is how the error of a handler begins that was parked and has not returned that.
const ignoredPark = "handler ignored that it was "

// passParks lets a run live until it has ended, and returns how often it was parked.
func (k *Kit) passParks(id durable.RunID, inputs []Fact, send func(Fact)) (parks int) {
	k.t.Helper()
	for ; ; parks++ {
		k.RunDue()
		record, err := k.Store.Run(k.t.Context(), id)
		if err != nil {
			k.t.Fatalf("check parks: %v", err)
		}
		if record.State.Terminal() {
			return parks
		}
		recorded, err := store.StepsOf(k.t.Context(), k.Store, id)
		if err != nil {
			k.t.Fatalf("check parks: %v", err)
		}
		waits := openWaits(&recorded)
		sent := false
		for i := range waits {
			given := slices.IndexFunc(inputs, func(input Fact) bool { return input.kind == factSent && input.name == waits[i].Name })
			if given >= 0 && waits[i].Kind == store.StepInput {
				send(inputs[given])
				sent = true
			}
		}
		switch {
		case sent:
		case time.Until(record.DueAt) > endless:
			k.t.Fatalf("the run waits %s: give CheckParks the input, with Sent", described(waits))
		default:
			k.Advance(time.Until(record.DueAt))
		}
		if len(waits) == 0 { // a retry
			parks--
		}
	}
}

// watch notes what handlers do after a park.
type watch struct {
	mu    sync.Mutex
	found []string
}

func (w *watch) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.found, text) {
		w.found = append(w.found, text)
	}
}

func (w *watch) read() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.found)
}

// watched is one execution that is watched.
type watched struct {
	*watch

	run interface {
		Recorded(ctx context.Context, name string) (bool, error)
	}
	info durable.RunInfo
}

// parked returns the park by which the branch of ctx is closed.
func (w *watched) parked(ctx context.Context) error {
	_, err := w.run.Recorded(ctx, "any")
	if err != nil && durable.OutcomeOf(ctx, w.info, err) == store.Snoozed {
		return err
	}
	return nil
}

type watchedKey struct{}

// watchFor notes what is done with a handler's context, if that is watched and was parked.
func watchFor(ctx context.Context, what string) {
	if w, is := ctx.Value(watchedKey{}).(*watched); is {
		if park := w.parked(ctx); park != nil {
			w.note(fmt.Sprintf("%s comes after it was %v", what, park))
		}
	}
}

// watchedContext is the context of a handler. Whatever the handler does through its run asks its context for
// the branch that it is in, which is when a park that it ignores is found.
type watchedContext struct {
	context.Context

	w *watched
}

// Value returns what the context has under a key.
func (c watchedContext) Value(key any) any {
	if key == (watchedKey{}) {
		return c.w
	}
	if asked := reflect.TypeOf(key); asked != nil && asked.PkgPath() == module+"internal/stepping" {
		if park := c.w.parked(c.Context); park != nil {
			c.used(park)
		}
	}
	return c.Context.Value(key)
}

// used notes a use of the run after a park.
func (c watchedContext) used(park error) {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	what := ""
	for {
		frame, more := frames.Next()
		name, own := strings.CutPrefix(frame.Function, module)
		switch {
		case strings.HasPrefix(name, "durable/durabletest.(*watched).parked"): // the kit's own question
			return
		case own && strings.HasPrefix(name, "durable."):
			what = strings.ReplaceAll(name, "[...]", "")
		case strings.HasPrefix(name, "context."):
		case !own || !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "durable/durabletest."):
			c.w.note(fmt.Sprintf("%s at %s:%d comes after it was %v", what, filepath.Base(frame.File), frame.Line, park))
			return
		}
		if !more {
			return
		}
	}
}

const module = "github.com/durable-worker/durable-worker/"

// watchedStore is the store of the kit's client.
type watchedStore struct{ *memory.Store }

// Enqueue is watched.
func (s watchedStore) Enqueue(ctx context.Context, runs ...durable.NewRun) ([]durable.Receipt, error) {
	for i := range runs {
		watchFor(ctx, fmt.Sprintf("the enqueue of a run of job %q", runs[i].Job))
	}
	return s.Store.Enqueue(ctx, runs...)
}

// Send is watched.
func (s watchedStore) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	watchFor(ctx, fmt.Sprintf("the input %q, sent to another run,", input.Name))
	return s.Store.Send(ctx, input)
}
