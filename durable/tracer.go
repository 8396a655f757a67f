package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Tracer is told what clients and workers do, to count it, to time it and to
// carry the trace of whoever enqueued a run to where it is executed. Its methods
// are called from many goroutines, must not block, and must not keep what they
// are given a pointer or a slice of. One that panics changes nothing but that its
// answer is missing: a worker logs it, and goes on.
type Tracer interface {
	// Enqueue is called before runs are sent to the store. It may set the
	// Trace of each; other changes are dropped, and so is a Trace that may not
	// be stored (see NewRun). The context is used for the call, and must come
	// from ctx. The function, which may be nil, is called with the outcome:
	// nil when the runs are stored.
	Enqueue(ctx context.Context, runs []NewRun) (context.Context, func(error))
	// Execute is called before an attempt, outside of all middleware. The
	// context is the handler's, and must come from ctx. The function, which
	// may be nil, is called when the handler has returned, with what was
	// decided, the result left out; that need not be what is stored, see
	// RunSettled: of a handler that has called CompleteIn and returned nil, a
	// success. Runs that are handed back or cancelled before they begin are
	// not executed.
	Execute(ctx context.Context, run RunInfo) (context.Context, func(store.Outcome))
	// StoreCalled tells of one call of the store by a worker, of those that
	// StoreCall names: not of sweeps, reports, signals and questions about
	// cancelled runs.
	StoreCalled(call StoreCall)
	// RunSettled tells what the store made of the outcome of a run that the
	// worker had claimed.
	RunSettled(settled RunVerdict)
	// RunLost tells of a run whose lease is lost, here or elsewhere, or whose
	// handler does not return.
	RunLost(loss RunLoss)
}

// StoreCall is one call of the store.
type StoreCall struct {
	Verb string // heads, claim, hand back, settle, reclaim, renew, materialize, hasten, declare, touch
	Runs int    // claimed, sent to be settled, reclaimed or materialized; zero for the other verbs
	Took time.Duration
	Err  error // nil: it was carried out
}

// RunVerdict is the store's answer to an outcome. Refused: the lease was lost,
// and nothing has changed. Deferred is not told; it is asked again.
type RunVerdict struct {
	Run     RunInfo
	Outcome store.OutcomeKind
	Verdict store.Verdict
}

// RunLoss is a run that is not, or no longer, in good hands.
type RunLoss struct {
	Kind       LossKind
	ID         RunID
	Job        string
	Queue      string
	Worker     string // that had the run
	CrashCount int
	Dead       bool // of WorkerCrashed: the run is dead, not pending again
}

// LossKind says how a run was lost.
type LossKind string

// The kinds of loss.
const (
	// LeaseLost: this worker's lease is lost while the handler is executing,
	// and its context is cancelled.
	LeaseLost LossKind = "lease lost"
	// HandlerStuck: the handler ignores that its context has ended.
	HandlerStuck LossKind = "handler stuck"
	// WorkerCrashed: the run was reclaimed from a worker that has lost it.
	WorkerCrashed LossKind = "worker crashed"
)

// WithTracer returns a client of the same store whose enqueues are told to t.
func (c *Client) WithTracer(t Tracer) *Client {
	traced := *c
	traced.tracer = t
	return &traced
}

// Traced returns a door whose enqueues are told to t, for a store that is bound
// to a transaction. A Client has WithTracer.
func Traced(to Enqueuer, t Tracer) Enqueuer { return tracedEnqueuer{to, t} }

type tracedEnqueuer struct {
	to     Enqueuer
	tracer Tracer
}

// Enqueue passes the runs on.
func (e tracedEnqueuer) Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error) {
	ctx, runs, ended := traceEnqueue(ctx, e.tracer, runs)
	receipts, err := e.to.Enqueue(ctx, runs...)
	ended(err)
	return receipts, err
}

// traceEnqueue tells a tracer, which may be nil, of runs about to be enqueued.
// The runs it returns differ from those given by their traces alone.
func traceEnqueue(ctx context.Context, t Tracer, runs []NewRun) (context.Context, []NewRun, func(error)) {
	if t == nil || len(runs) == 0 {
		return ctx, runs, func(error) {}
	}
	told := append([]NewRun(nil), runs...)
	within, ended := ctx, func(error) {}
	quietly(func() {
		if c, f := t.Enqueue(ctx, told); c != nil {
			within, ended = c, orNothing(f)
		}
	})
	sent := append([]NewRun(nil), runs...)
	for i := range sent {
		if store.CheckTrace(told[i].Trace) == nil {
			sent[i].Trace = told[i].Trace
		}
	}
	return within, sent, func(err error) { quietly(func() { ended(err) }) }
}

// quietly calls a tracer of the user's own and returns what it panicked with.
func quietly(call func()) (value any) {
	defer func() { value = recover() }()
	call()
	return nil
}

func orNothing[T any](f func(T)) func(T) {
	if f == nil {
		return func(T) {}
	}
	return f
}
