package chaos_test

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/db"
	sqlitedb "github.com/durable-worker/durable-worker/db/sqlite"
	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/backend"
)

// What a program of the first schema left behind, and the locks of one of the
// second, are taken up by a program of today.
func TestUpgrade_PostgreSQL(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "create schema durable")
	require.NoError(t, err)
	for _, text := range oldTexts(t, db.Migrations, "postgres") {
		_, err := conn.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	upgraded(t, url)
}

func TestUpgrade_SQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	file, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	file.SetMaxOpenConns(1)
	for _, text := range oldTexts(t, sqlitedb.Files, "sqlite") {
		_, err := file.Exec(text)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
	upgraded(t, "sqlite:"+path)
}

// oldTexts are the first two migrations, each with the data it is followed by.
func oldTexts(t *testing.T, migrations fs.FS, engine string) (texts []string) {
	t.Helper()
	for number, data := range map[string]string{"0001": "first", "0002": "second"} {
		names, err := fs.Glob(migrations, "migrations/"+number+"_*.sql")
		require.NoError(t, err)
		require.Len(t, names, 1)
		text, err := fs.ReadFile(migrations, names[0])
		require.NoError(t, err)
		rows, err := os.ReadFile(filepath.Join("testdata", data+"-"+engine+".sql"))
		require.NoError(t, err)
		texts = append(texts, string(text)+"\n"+string(rows))
	}
	if !strings.Contains(texts[0], "first schema") { // a map has no order
		texts[0], texts[1] = texts[1], texts[0]
	}
	return texts
}

type oldArgs struct {
	N  int    `json:"n"`
	By string `json:"by"`
}

func oldRun(n byte) durable.RunID {
	id := uuid.MustParse("01890000-0000-7000-8000-000000000000")
	id[15] = n
	return id
}

func upgraded(t *testing.T, dsn string) {
	store, err := backend.Open(t.Context(), dsn, backend.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	applied, err := store.Migrate(t.Context())
	require.NoError(t, err)
	have, want, _, err := store.Schema(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, have)
	require.Equal(t, want-2, applied)

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var executed, ticks atomic.Int64
	worker := durable.NewWorker(store, durable.WorkerConfig{PollInterval: 100 * time.Millisecond})
	durable.Register(worker, durable.NewJob[oldArgs]("old"), func(_ context.Context, run *durable.Run[oldArgs]) error {
		if byte(run.Args.N) != run.ID[15] {
			return durable.Permanent(os.ErrInvalid)
		}
		executed.Add(1)
		return nil
	})
	durable.Register(worker, durable.NewJob[oldArgs]("tick"), func(_ context.Context, run *durable.Run[oldArgs]) error {
		if run.Args.By == "beat" {
			ticks.Add(1)
		}
		return nil
	})
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool { return executed.Load() >= 4 && ticks.Load() >= 2 }, 2*time.Minute, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	oldRuns(t, store)
	oldLocks(t, store.Locks())

	schedules, err := store.ListSchedules(t.Context())
	require.NoError(t, err)
	require.Len(t, schedules, 2)
	require.Equal(t, durable.Every(time.Second), schedules[0].Rule)
	require.Equal(t, int64(3), schedules[0].Generation)
	require.Equal(t, durable.Cron("0 3 * * *", "Europe/Berlin"), schedules[1].Rule)
	require.NotNil(t, schedules[1].NextAt)
}

func oldRuns(t *testing.T, store durable.Store) {
	for n, want := range map[byte]durable.State{
		1: durable.Succeeded, 2: durable.Succeeded, 3: durable.Succeeded, 4: durable.Succeeded,
		5: durable.Pending, 6: durable.Succeeded, 7: durable.Dead, 8: durable.Cancelled,
	} {
		r := record(t, store, oldRun(n))
		require.Equal(t, want, r.State, "run %d: %+v", n, r)
	}
	require.Equal(t, []string{"a", "b"}, record(t, store, oldRun(1)).Tags)
	require.Len(t, failures(record(t, store, oldRun(2))), 1)
	require.Equal(t, 2, record(t, store, oldRun(2)).Attempt)
	require.Equal(t, 1, record(t, store, oldRun(4)).CrashCount, "its worker had died")
	require.JSONEq(t, `{"ok":true}`, string(record(t, store, oldRun(6)).Result))
	require.Equal(t, "for good", *record(t, store, oldRun(7)).Error)
	require.Equal(t, "expired", *record(t, store, oldRun(8)).Error)
	page, err := store.Runs(t.Context(), durable.Filter{States: []durable.State{durable.Dead, durable.Cancelled}, Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Runs, 2)
}

func oldLocks(t *testing.T, locks lock.Locks) {
	held := lease.ClaimID(uuid.MustParse("00000000-0000-4000-8000-0000000000aa"))
	ask := func(name string) lock.Answer {
		t.Helper()
		answer, err := locks.Acquire(t.Context(), lock.Request{Name: name, Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute})
		require.NoError(t, err)
		return answer
	}
	require.False(t, ask("held").Granted)
	renewed, err := locks.Renew(t.Context(), []lease.ClaimID{held}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []lease.ClaimID{held}, renewed)
	released, err := locks.Release(t.Context(), "held", held)
	require.NoError(t, err)
	require.True(t, released)
	require.Greater(t, ask("held").Fence, lease.Fence(4000000000000001))
	require.Greater(t, ask("free").Fence, lease.Fence(4000000000000009), "over all slots of the name")
	forced, err := locks.ListForced(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, forced, 1)
	require.Equal(t, "why", forced[0].Reason)
}
