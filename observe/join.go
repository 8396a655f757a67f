package observe

import (
	"context"

	"github.com/durable-worker/durable-worker/lock"
)

// Join returns hooks that call a's and then b's. Where a hook returns a context, b
// gets the context that a returned, and what b's begins ends before what a's
// began, like nested spans: when both set the Trace of a run, b's counts. A
// panic of one does not keep the other from being called.
func Join(a, b Hooks) Hooks {
	return Hooks{
		Enqueue:     nest(a.Enqueue, b.Enqueue),
		Execute:     nest(a.Execute, b.Execute),
		Step:        nest(a.Step, b.Step),
		StoreCalled: both(a.StoreCalled, b.StoreCalled),
		RunSettled:  both(a.RunSettled, b.RunSettled),
		RunLost:     both(a.RunLost, b.RunLost),
		RunFailed:   bothWithin(a.RunFailed, b.RunFailed),
		Lock:        lock.JoinHooks(a.Lock, b.Lock),
	}
}

// both calls two hooks, the second one also when the first one panics.
func both[E any](a, b func(E)) func(E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(event E) {
			defer b(event)
			a(event)
		}
	}
}

// bothWithin is both for hooks that take a context.
func bothWithin[E any](a, b func(context.Context, E)) func(context.Context, E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(ctx context.Context, event E) {
			defer b(ctx, event)
			a(ctx, event)
		}
	}
}

// nest calls two hooks that begin something, the second one within the first.
func nest[S, E any](a, b func(context.Context, S) (context.Context, func(E))) func(context.Context, S) (context.Context, func(E)) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(ctx context.Context, start S) (context.Context, func(E)) {
			ctx, endA := begin(ctx, start, a)
			ctx, endB := begin(ctx, start, b)
			return ctx, func(end E) {
				defer endA(end)
				endB(end)
			}
		}
	}
}

// begin calls a hook. A panic is raised again when what it began ends: it must not
// lose what the other hook answers.
func begin[S, E any](ctx context.Context, start S, hook func(context.Context, S) (context.Context, func(E))) (within context.Context, end func(E)) {
	defer func() {
		if value := recover(); value != nil {
			within, end = ctx, func(E) { panic(value) }
		}
	}()
	within, end = hook(ctx, start)
	if within == nil {
		within = ctx
	}
	if end == nil {
		end = func(E) {}
	}
	return within, end
}
