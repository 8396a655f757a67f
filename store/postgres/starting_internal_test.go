package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// A worker that starts makes all of its calls concurrently. Each connection that it opens costs
// the server as much as a hundred of them.
func TestPool_AStartingWorkerOpensTwoConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	migrator, err := Open(t.Context(), url, Config{})
	require.NoError(t, err)
	t.Cleanup(migrator.Close)
	require.NoError(t, ignore(migrator.schema.Migrate(t.Context())))
	var opened atomic.Int32
	s, err := Open(t.Context(), url, Config{Connect: func(context.Context, *pgx.ConnConfig) error {
		opened.Add(1)
		return nil
	}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	worker := store.WorkerID{Name: "starting", Instance: uuid.New()}
	calls := []func() error{
		func() error { return s.Touch(t.Context(), worker) },
		func() error {
			return ignore(s.Heads(t.Context(), store.Serves{Queues: []string{"default"}, Jobs: []string{"mail"}}))
		},
		func() error { return ignore(s.Reclaim(t.Context(), store.ReclaimRequest{Limit: 1})) },
		func() error { return ignore(s.Materialize(t.Context(), 1, nil)) },
		func() error {
			return ignore(s.declarer.ReportWorker(t.Context(), store.WorkerReport{Worker: worker, Number: 1, Presence: store.Presence{Every: store.Duration(time.Second)}}))
		},
	}
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { errs[i] = call() })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 2, opened.Load(), "one of the engine's, one for heartbeats")
	require.Positive(t, s.numbers.Workers(), "which it keeps, and other processes close")
	require.Zero(t, migrator.numbers.Workers())
}

func ignore[T any](_ T, err error) error { return err }
