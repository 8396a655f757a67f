package chaos_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/backend"
)

// An occurrence starts when it is due, not when the worker polls.
func TestPunctual_PostgreSQL(t *testing.T) { punctual(t, pgtest.Database(t)) }

func TestPunctual_SQLite(t *testing.T) {
	punctual(t, "sqlite:"+filepath.Join(t.TempDir(), "durable.db"))
}

func punctual(t *testing.T, dsn string) {
	const ticks, poll = 12, 10 * time.Second
	db, err := backend.Open(t.Context(), dsn, backend.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var late []time.Duration
	job := durable.NewJob[struct{}]("tick")
	worker := durable.NewWorker(db, durable.WorkerConfig{PollInterval: poll})
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[struct{}]) error {
		now := time.Now() // the database's clock is this machine's
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, now.Sub(run.DueAt)); len(late) == ticks {
			cancel()
		}
		return nil
	})
	durable.AddSchedule(worker, "every-second", job, struct{}{}, durable.Every(time.Second), durable.Overlap(durable.OverlapAllow))
	began := time.Now()
	require.NoError(t, worker.Run(ctx))
	require.GreaterOrEqual(t, len(late), ticks, "within %v", time.Since(began))
	slices.Sort(late)
	t.Logf("from the instant to the handler: median %v, most %v", late[ticks/2], late[ticks-1])
	// Polls alone would be late by five seconds in the median, and by as little as
	// this once in a hundred times. Any machine has a moment for some of them.
	require.Less(t, late[ticks/4], 200*time.Millisecond)
	require.Less(t, late[ticks/2], poll/5)
}
