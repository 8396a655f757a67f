package durablecmd_test

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/store"
)

// counts is a tracer that counts.
type counts struct{ enqueued, executed atomic.Int32 }

func (c *counts) Enqueue(ctx context.Context, runs []durable.NewRun) (context.Context, func(error)) {
	c.enqueued.Add(int32(len(runs)))
	runs[0].Trace = "of the program"
	return ctx, nil
}

func (c *counts) Execute(ctx context.Context, _ durable.RunInfo) (context.Context, func(store.Outcome)) {
	c.executed.Add(1)
	return ctx, nil
}
func (c *counts) StoreCalled(durable.StoreCall) {}
func (c *counts) RunSettled(durable.RunVerdict) {}
func (c *counts) RunLost(durable.RunLoss)       {}

func TestAProgramHasMiddlewareAndATracer(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	job := durable.NewJob[string]("greet")
	var seen []string
	tracer := &counts{}
	e := executeWith(t, durablecmd.Start{
		Env: file(t, "DURABLE_POLL_INTERVAL=20ms"), Args: []string{"work"}, Signals: signals, Tracer: tracer,
		Middleware: []durable.Middleware{func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
			seen = append(seen, run.Job+" "+run.Trace)
			defer func() { signals <- syscall.SIGTERM }()
			return next(ctx)
		}},
		Setup: func(ctx context.Context, app *durablecmd.App) error {
			durable.Register(app.Worker, job, func(context.Context, *durable.Run[string]) error { return nil })
			_, err := job.Enqueue(ctx, app.Client, "world")
			return err
		},
	})
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, []string{"greet of the program"}, seen)
	require.Equal(t, int32(1), tracer.enqueued.Load())
	require.Equal(t, int32(1), tracer.executed.Load())

	e = executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config"}, Setup: stock, Middleware: []durable.Middleware{nil}})
	require.NotZero(t, e.code)
	require.Contains(t, e.stdout+e.stderr, "middleware 0 is nil")
}
