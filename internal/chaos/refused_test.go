package chaos_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// One run whose outcome the database refuses, for whatever reason, stops no other
// outcome of its worker, and is settled when the reason is gone.
func TestOneOutcomeIsRefused_PostgreSQL(t *testing.T) {
	for _, code := range []string{"P0001", "42501", "XX001", "58030", "57014", "40001", "22P02"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			store := openStore(t, dsn)
			conn, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			oneIsRefused(t, store, func(bad durable.RunID) {
				_, err := conn.Exec(t.Context(), fmt.Sprintf(`
					create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '%s'; end $$;
					create trigger refuse before update on durable.runs for each row when (new.id = '%s' and new.state > 1) execute function refuse()`, code, bad))
				require.NoError(t, err)
			}, func() {
				_, err := conn.Exec(t.Context(), "drop trigger refuse on durable.runs")
				require.NoError(t, err)
			})
		})
	}
}

func TestOneOutcomeIsRefused_SQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "durable.db")
	store := openStore(t, "sqlite:"+path)
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	oneIsRefused(t, store, func(bad durable.RunID) {
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`create trigger refuse before update on runs when new.id = x'%s' and new.state > 1
			begin select raise(abort, 'no'); end`, hex.EncodeToString(bad[:])))
		require.NoError(t, err)
	}, func() {
		_, err := db.ExecContext(t.Context(), "drop trigger refuse")
		require.NoError(t, err)
	})
}

func oneIsRefused(t *testing.T, db durable.Store, refuse func(durable.RunID), admit func()) {
	t.Helper()
	job := durable.NewJob[struct{}]("mail")
	w := durable.NewWorker(db, durable.WorkerConfig{MaxConcurrentRuns: 5, PollInterval: 200 * time.Millisecond})
	durable.Register(w, job, func(context.Context, *durable.Run[struct{}]) error { return nil })
	bad := job.New(struct{}{})
	refuse(bad.ID)
	client := durable.NewClient(db)
	_, err := client.Enqueue(t.Context(), bad)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	until(t, db, time.Minute, "it executes", func(counts map[durable.State]store.Count) bool { return counts[durable.Running].N == 1 })
	others := make([]durable.NewRun, 200)
	for i := range others {
		others[i] = job.New(struct{}{})
	}
	_, err = client.Enqueue(t.Context(), others...)
	require.NoError(t, err)
	until(t, db, time.Minute, "the others succeed", func(counts map[durable.State]store.Count) bool { return counts[durable.Succeeded].N == 200 })
	require.Eventually(t, func() bool { return w.Status().Unsettled.Count == 1 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []durable.RunID{bad.ID}, w.Status().Unsettled.Runs)
	admit()
	until(t, db, 2*time.Minute, "it succeeds", func(counts map[durable.State]store.Count) bool { return counts[durable.Succeeded].N == 201 })
	r := record(t, db, bad.ID)
	require.Zero(t, r.CrashCount)
	cancel()
	require.NoError(t, <-ended)
}
