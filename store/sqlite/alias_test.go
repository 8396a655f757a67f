package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestAliasOutlivesTheProgramThatEnqueued(t *testing.T) {
	t.Parallel()
	s, path := openMigrated(t)
	run := durable.NewJob[string]("send-mail").New("to eve")
	run.Trace = "of the old program"
	_, err := durable.NewClient(s).Enqueue(t.Context(), run)
	require.NoError(t, err)
	s.Close()

	again := open(t, path, sqlite.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var trace string
	w := durable.NewWorker(again, durable.WorkerConfig{Middleware: []durable.Middleware{
		func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
			trace = run.Trace
			return next(ctx)
		},
	}})
	job := durable.NewJob[string]("mail", durable.Alias("send-mail"))
	durable.Register(w, job, func(_ context.Context, run *durable.Run[string]) error {
		defer cancel()
		return run.SetResult(run.Job + " " + run.Args)
	})
	require.NoError(t, w.Run(ctx))
	record, err := again.Run(t.Context(), run.ID)
	require.NoError(t, err)
	require.Equal(t, store.Succeeded, record.State)
	require.Equal(t, "send-mail", record.Job)
	require.JSONEq(t, `"send-mail to eve"`, string(record.Result))
	require.Equal(t, "of the old program", trace)
}
