package stepping

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ParkError says that a run is put back until an instant, until an input comes, or until its
// children have ended. It is how a step's retry, a sleep and a wait end an execution.
type ParkError struct {
	Name  string
	Until time.Duration  // on the worker's monotonic clock; negative: there is no end
	Kind  store.StepKind // StepInput: an input of this name ends it earlier; StepChildren: they do
	Of    []*ParkError   // the waits of which the first ends it; nil: it is one wait
}

// Error says at which step the run was put back.
func (e *ParkError) Error() string { return fmt.Sprintf("parked at %q", e.Name) }

// ParkedAt finds a park in an error, however that is wrapped.
func ParkedAt(err error) (park *ParkError) {
	defer func() {
		if recover() != nil { // a method of the user's own error
			park = nil
		}
	}()
	errors.As(err, &park)
	return park
}

// IgnoredPark is the error of a handler that was parked and has returned another error, or nil.
func IgnoredPark(park, err error) error {
	if err == nil {
		return fmt.Errorf("handler ignored that it was %s: it must return the error of the step, the sleep or the wait", park.Error())
	}
	return fmt.Errorf("handler ignored that it was %s: %w", park.Error(), err)
}

// branch is one line of a handler that continues by itself: the handler's, or a function's that
// Parallel executes. After a park it is closed.
type branch struct {
	parent *branch // nil: the handler's

	mu     sync.Mutex
	closed error // the park
}

type branchKey struct{}

// close closes the branch with a park, and returns what the branch is closed with.
func (b *branch) close(park error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = park
	}
	return b.closed
}

// isClosed returns the park by which the branch, or the one that it is a part of, is closed.
func (b *branch) isClosed() error {
	for ; b != nil; b = b.parent {
		b.mu.Lock()
		err := b.closed
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// branchOf returns the branch that ctx belongs to.
func (b *Book) branchOf(ctx context.Context) *branch {
	if within, is := ctx.Value(branchKey{}).(*branch); is {
		return within
	}
	return &b.root
}

// Parallel executes functions concurrently, each as a branch of its own, and waits for all of
// them. The error is that of the first that failed; if none did, the park of one that was parked.
// If a function panics, so does Parallel, when all have returned.
func (b *Book) Parallel(ctx context.Context, branches []func(ctx context.Context) error) error {
	if err := b.Open(ctx); err != nil {
		return err
	}
	outer := b.branchOf(ctx)
	errs, panics := make([]error, len(branches)), make([]any, len(branches))
	var all sync.WaitGroup
	for i, f := range branches {
		within := context.WithValue(ctx, branchKey{}, &branch{parent: outer})
		all.Go(func() {
			defer func() { panics[i] = recover() }()
			errs[i] = f(within)
		})
	}
	all.Wait()
	var parked error
	for i, err := range errs {
		switch park := ParkedAt(err); {
		case panics[i] != nil:
			panic(panics[i])
		case park != nil:
			parked = park
		case err != nil:
			return err
		}
	}
	if parked != nil {
		return outer.close(parked)
	}
	return nil
}
