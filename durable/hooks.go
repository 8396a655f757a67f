package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// enqueueHook is observe.Hooks.Enqueue; nil: none.
type enqueueHook = func(context.Context, observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd))

// WithHooks returns a client of the same store that calls h when it enqueues, in
// place of the hooks it had. observe.Join combines hooks.
func (c *Client) WithHooks(h observe.Hooks) *Client {
	observed := *c
	observed.hook = h.Enqueue
	return &observed
}

// Observed returns an Enqueuer that calls h when it enqueues through to, such as a
// store that is bound to a transaction. A Client has WithHooks.
func Observed(to Enqueuer, h observe.Hooks) Enqueuer { return observedEnqueuer{to, h.Enqueue} }

type observedEnqueuer struct {
	to   Enqueuer
	hook enqueueHook
}

// Enqueue passes the runs on.
func (e observedEnqueuer) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	ctx, runs, ended := observeEnqueue(ctx, e.hook, runs)
	receipts, err := e.to.Enqueue(ctx, runs...)
	ended(err)
	return receipts, err
}

// observeEnqueue calls a hook, which may be nil, for runs about to be enqueued.
// The runs it returns differ from those given by their traces alone.
func observeEnqueue(ctx context.Context, hook enqueueHook, runs []NewRun) (context.Context, []NewRun, func(error)) {
	if hook == nil || len(runs) == 0 {
		return ctx, runs, func(error) {}
	}
	shown := append([]NewRun(nil), runs...)
	within, ended := ctx, (func(observe.EnqueueEnd))(nil)
	quietly(func() { within, ended = begun(ctx, observe.EnqueueStart{Runs: shown}, hook) })
	sent := append([]NewRun(nil), runs...)
	for i := range sent {
		if store.CheckTrace(shown[i].Trace) == nil {
			sent[i].Trace = shown[i].Trace
		}
	}
	if ended == nil {
		return within, sent, func(error) {}
	}
	return within, sent, func(err error) { quietly(func() { ended(observe.EnqueueEnd{Err: err}) }) }
}

// quietly calls a hook and returns what it panicked with.
func quietly(call func()) (value any) {
	defer func() { value = recover() }()
	call()
	return nil
}

// begun calls a hook that begins something, within the caller's context if it returns
// none. end is nil if the hook does not ask for the end.
func begun[S, E any](ctx context.Context, start S, hook func(context.Context, S) (context.Context, func(E))) (within context.Context, end func(E)) {
	if within, end = hook(ctx, start); within == nil {
		within = ctx
	}
	return within, end
}

// failureEvent is what RunFailed is called with, before the record is read.
type failureEvent struct {
	id     RunID
	known  observe.RunFailure
	reason string // why it is dead, as far as the worker knows
}

// failureQueue holds what waits for RunFailed.
type failureQueue struct {
	mu      sync.Mutex
	waiting []failureEvent
	dropped int
	closed  bool
	signal  chan struct{}
}

const (
	failuresMost = 1000
	failureLimit = 30 * time.Second // of one call of RunFailed
)

// add takes note of a failure. It never blocks.
func (f *failureQueue) add(one failureEvent) {
	f.mu.Lock()
	if len(f.waiting) < failuresMost {
		f.waiting = append(f.waiting, one)
	} else {
		f.dropped++
	}
	f.mu.Unlock()
	poke(f.signal)
}

// close makes the loop end when nothing waits.
func (f *failureQueue) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	poke(f.signal)
}

func (f *failureQueue) take() (all []failureEvent, dropped int, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, dropped, f.waiting, f.dropped = f.waiting, f.dropped, nil, 0
	return all, dropped, f.closed
}

// Middleware is called around the handlers of a worker, once for each attempt; next calls the
// rest. What it returns counts as what the handler returned, and decides the attempt's
// outcome: a middleware that does not call next ends the attempt without the handler. A panic
// in it, and runtime.Goexit, are failed attempts like a handler's.
//
// Args are not decoded yet: next does that too, and returns why they could not
// be. The context given to next must come from ctx, which ends when the lease is
// lost, when the attempt has taken too long and when the worker stops. Calling
// next twice performs the handler twice within one attempt; next must not be
// called any more when the middleware has returned. It is called from many
// goroutines.
type Middleware func(ctx context.Context, run RunInfo, next func(ctx context.Context) error) error

// runInfo is the run as others may see it.
func (x *execution) runInfo() RunInfo {
	return RunInfo{
		ID: x.run.ID, Job: x.job, Queue: x.queue, Attempt: x.run.Attempt, MaxAttempts: x.run.MaxAttempts,
		CrashCount: x.run.CrashCount, Fence: x.run.Fence, DueAt: x.run.DueAt, CreatedAt: x.run.CreatedAt,
		Timeout: x.run.Timeout, Trace: x.run.Trace, Key: x.run.Key, Schedule: x.run.Schedule, OccursAt: x.run.OccursAt, Tags: x.run.Tags, Metadata: x.run.Metadata,
	}
}

// withMiddleware calls the handler within the middleware from the n-th inwards.
func (x *execution) withMiddleware(ctx context.Context, n int) error {
	middleware := x.w.config.Middleware
	if n == len(middleware) {
		return x.call(ctx, x)
	}
	return middleware[n](ctx, x.runInfo(), func(ctx context.Context) error { return x.withMiddleware(ctx, n+1) })
}
