// Package observe lets your code see what workers, clients and lockers do: to
// trace, to count, to raise alarms.
//
// Fill in the hooks that you need and give them to durable.WorkerConfig,
// Client.WithHooks, durable.Observed and lock.LockerConfig. A hook that is nil is
// not called and costs nothing. Join combines the hooks of several observers.
//
// Every hook takes a struct, and at most a context before it. A new fact becomes
// a new field of a struct, and a new event a new hook: neither changes the code
// that you have. Name the fields when you write Hooks.
package observe

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// Hooks are called when something happens, from many goroutines. They must not
// block, and must not keep a slice that they are given. A hook that panics changes
// nothing else: a worker logs it and continues, and a client ignores it.
type Hooks struct {
	// Enqueue is called before runs are sent to the store. It may set the Trace
	// of each run; other changes are ignored, and so is a Trace that cannot be
	// stored (see store.NewRun). The returned context is used for the call and
	// must come from ctx; nil means ctx. The returned function, which may be
	// nil, is called with the outcome.
	Enqueue func(ctx context.Context, start EnqueueStart) (context.Context, func(EnqueueEnd))
	// Execute is called before an attempt, outside all middleware. The returned
	// context is the handler's and must come from ctx; nil means ctx. The
	// returned function, which may be nil, is called when the handler has
	// returned. Runs that are handed back or cancelled before they begin are not
	// executed.
	Execute func(ctx context.Context, start ExecuteStart) (context.Context, func(ExecuteEnd))
	// Step is called before a step of a handler is executed; a step whose result is stored is
	// not. The returned context is the step's and must come from ctx; nil means ctx. The returned
	// function, which may be nil, is called when the step has been executed and recorded.
	Step func(ctx context.Context, start StepStart) (context.Context, func(StepEnd))
	// StoreCalled is called after a worker's call of the store, for the verbs
	// that StoreCall names. It is not called for sweeps, reports, signals and
	// queries for cancelled runs.
	StoreCalled func(StoreCall)
	// RunSettled is called when the store has answered to the outcome of a run.
	RunSettled func(RunVerdict)
	// RunLost is called for a run whose lease is lost, here or elsewhere, or whose
	// handler does not return.
	RunLost func(RunLoss)
	// RunFailed is called for every failed attempt that the store has taken, and for
	// every run that a crash has ended in dead, with the whole record: to report
	// errors, to raise an alarm about dead runs. Unlike the other hooks it may take its
	// time, such as a request to another service: the worker calls it in a goroutine of
	// its own, one failure after another, each with up to 30 seconds. It must return
	// when its context ends. Up to 1000 failures wait; those beyond that are dropped,
	// and the worker logs how many. A failure whose worker is killed is not reported.
	RunFailed func(ctx context.Context, failure RunFailure)
	// Lock are the hooks of named locks. Workers and clients do not call them:
	// give them to lock.LockerConfig.
	Lock lock.Hooks
}

// EnqueueStart is a call that enqueues runs.
type EnqueueStart struct {
	Runs []store.NewRun
}

// EnqueueEnd is the outcome of a call that enqueues runs.
type EnqueueEnd struct {
	Err error // nil: the runs are stored
}

// ExecuteStart is an attempt that begins.
type ExecuteStart struct {
	Run store.RunInfo
}

// ExecuteEnd is what the worker decided about an attempt, without the result. What
// is stored can differ, see RunSettled: a handler that has called CompleteIn and
// returned nil counts as a success here.
type ExecuteEnd struct {
	Outcome store.Outcome
	// Parks are the waits because of which the run is put back, if Outcome is Snoozed.
	Parks []Park
}

// Park is a wait, or a step that is tried again, because of which a run is put back.
type Park struct {
	Step string         // its name
	Kind store.StepKind // StepSleep, StepInput, StepChildren, or StepTried
	In   time.Duration  // until it ends by itself; negative: it does not
}

// StepStart is the execution of a step that begins.
type StepStart struct {
	Run  store.RunInfo
	Name string
	Try  int // 1 is the first; more than that only if the step has attempts of its own
}

// StepEnd is how the execution of a step ended.
type StepEnd struct {
	Result StepResult
	Err    error // of the step, or why its result was not recorded; nil if Result is StepDone
}

// StoreCall is one call of the store.
type StoreCall struct {
	Verb string // heads, claim, hand back, settle, reclaim, renew, record steps, release, materialize, reevaluate, declare, touch
	Runs int    // claimed, sent to be settled, reclaimed, released or materialized, and steps recorded; zero for the other verbs
	Took time.Duration
	Err  error // nil: it succeeded
	// Traces are those of up to 32 of the runs that a claim got, of the runs that have one.
	Traces []string
}

// RunVerdict is the store's answer to an outcome. Rejected means that the lease was
// lost and nothing has changed. Deferred is not reported: the worker asks again.
type RunVerdict struct {
	Run     store.RunInfo
	Outcome store.OutcomeKind
	Verdict store.Verdict
	Took    time.Duration // by the handler; zero: not known
	After   time.Duration // until the run is due again, for Failure, Snoozed and Misfit
	Error   string        // that was stored, for Failure, Death and Cancellation
	Err     error         // what the handler returned, or its panic, for Failure and Death; nil: not known
	Parks   []Park        // the waits because of which the run is put back, for Snoozed; none: the handler asked for it
}

// RunFailure is an attempt that has failed.
type RunFailure struct {
	// Record is the run as the store has it after the attempt, with args and attempts.
	// When the store does not answer it has no more than what the worker knows: ID,
	// Job, Queue, State, Attempt, MaxAttempts and Error.
	Record store.Record
	// Err is what the handler returned, or its panic, for errors.Is and errors.As. Of a
	// crash it is the stored reason.
	Err   error
	Stack string // of a panic
	Dead  bool   // the run is dead; else it will be tried again
	Crash bool   // a crash has ended the run, not an attempt of this worker
}

// RunLoss is a run that its worker has lost, or is about to lose.
type RunLoss struct {
	Kind       LossKind
	ID         store.RunID
	Job        string
	Queue      string
	Worker     string // that had the run
	CrashCount int
	Dead       bool // of WorkerCrashed: the run is dead, not pending again
}

// LossKind says how a run was lost.
type LossKind string

// The kinds of loss. More may come.
const (
	// LeaseLost: this worker's lease was lost while the handler was executing,
	// and the handler's context is cancelled.
	LeaseLost LossKind = "lease lost"
	// HandlerStuck: the handler ignores that its context has ended.
	HandlerStuck LossKind = "handler stuck"
	// WorkerCrashed: the run was reclaimed from a worker that has lost it.
	WorkerCrashed LossKind = "worker crashed"
)
