package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// parkError says that a run is put back until an instant, or until an input comes. It is how a
// step's retry, a sleep and a wait end an execution.
type parkError struct {
	name  string
	until time.Duration // on the worker's monotonic clock; negative: there is no end
	input bool          // an input of this name ends it earlier
}

// Error says at which step the run was put back.
func (e *parkError) Error() string { return fmt.Sprintf("parked at %q", e.name) }

// parkedAt finds a park in an error, however that is wrapped.
func parkedAt(err error) (park *parkError) {
	defer func() {
		if recover() != nil { // a method of the user's own error
			park = nil
		}
	}()
	errors.As(err, &park)
	return park
}

// branch is one line of a handler that goes on by itself: the handler's, or a function's that
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
func (s *stepping) branchOf(ctx context.Context) *branch {
	if b, is := ctx.Value(branchKey{}).(*branch); is {
		return b
	}
	return &s.root
}

// Parallel executes functions concurrently and waits for all of them. Each is a branch of the
// handler by itself: when one is parked, at a Receive for instance, the others go on to their ends
// before the run is put back. Steps in different functions need different names, as everywhere.
//
// The error is that of the first function, in the order of the arguments, that failed; if none
// did, the park of one that was parked. A function that panics makes Parallel panic when all
// have returned.
func Parallel(ctx context.Context, run AnyRun, branches ...func(ctx context.Context) error) error {
	s := run.executing().stepping()
	outer := s.branchOf(ctx)
	if err := s.open(ctx); err != nil {
		return err
	}
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
		switch park := parkedAt(err); {
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
