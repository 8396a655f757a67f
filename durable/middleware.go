package durable

import (
	"context"
)

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
