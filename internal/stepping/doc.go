// Package stepping keeps what one execution of a handler knows of its run's steps, waits and
// inputs, and writes what it records.
//
// A Book belongs to an execution. It reads what is recorded once, takes each name once, and knows
// by which waits the execution is parked. A Recorder belongs to a worker: it reads and writes for all
// its executions, many together. A Branch is one line of a handler that continues by itself;
// after a park it is closed, and nothing more happens in it. What an error of a step means is
// decided by package durable.
package stepping

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Host is the worker that executes the handlers.
type Host struct {
	Store   Store
	Elapsed func() time.Duration                       // monotonic
	Timeout func() time.Duration                       // of one call of the store
	Pause   func(ctx context.Context, d time.Duration) // rests for about d
}

// Store is what handlers need of one to record and to wait.
type Store interface {
	store.Stepper
	store.Caller
	// Outcomes returns how runs have ended, in the order of the ids.
	Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error)
}

// Execution is the execution that a Book belongs to.
type Execution interface {
	// Holder names the run and the claim that it is executed under.
	Holder() store.Holder
	// Gone returns lease.ErrLost once the handler has returned.
	Gone() error
	// Insist makes a call of the store until that answers, the execution or its lease ends, or
	// the store refuses it although it answers; then the error is lease.ErrLost, or the store's.
	Insist(ctx context.Context, once func(context.Context) error) error
	// Seal encodes a value that is stored under a name.
	Seal(name string, value []byte) ([]byte, error)
	// Unseal decodes what is recorded of a step.
	Unseal(step *store.StepRecord) ([]byte, error)
}

const (
	// lockedPause, lockedLongest and lockedTries bound how often a call is made again because
	// another transaction has locked the run: for about two seconds.
	lockedPause   = 5 * time.Millisecond
	lockedLongest = 200 * time.Millisecond
	lockedTries   = 15
)

// Nearly is how far an instant may be away for a wait to stay in the handler: putting the run back
// would take about as long.
const Nearly = 20 * time.Millisecond
