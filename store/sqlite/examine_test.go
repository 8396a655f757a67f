package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// found lists what an examination says beyond "ok", by name.
func found(t *testing.T, db *sqlite.Store) map[string]string {
	t.Helper()
	findings, err := db.Examine(t.Context())
	require.NoError(t, err)
	require.Greater(t, len(findings), 3)
	bad := map[string]string{}
	for _, one := range findings {
		require.Equal(t, one.Level == store.Fine, one.Hint == "", one.Name)
		if one.Level != store.Fine {
			bad[one.Name] += fmt.Sprintf("%s: %s; ", one.Level, one.Text)
		}
	}
	return bad
}

func TestExamineSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	st := open(t, path, sqlite.Config{})
	require.Empty(t, found(t, st), "without a schema only the file is examined")
	migrate(t, st)
	require.NoError(t, st.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w", Instance: uuid.New()}}))
	require.Empty(t, found(t, st))

	_, err := st.Enqueue(t.Context(), durable.NewJob[int]("stray").New(1))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o644)) //nolint:gosec // that is what is to be found
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"INSERT INTO queues (name, paused) VALUES ('mail', 1)",
		"INSERT INTO leases VALUES (x'00', 1, 2, 0, x'00', 'w', x'')",
	} {
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	bad := found(t, st)
	require.Contains(t, bad["queues"], "paused: mail")
	require.Contains(t, bad["leases"], "1 expired more than 1m0s ago")
	require.Contains(t, bad["file"], "mode 0644: others can reach the arguments of runs")
	require.Len(t, bad, 3, bad)
}

// A clock that was set back between two processes makes their leases disagree.
func TestExamineFindsThatTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before := open(t, path, sqlite.Config{Clock: func() time.Time { return time.Now().Add(time.Hour) }})
	migrate(t, before)
	after := open(t, path, sqlite.Config{})
	require.NotContains(t, found(t, after), "clock")
	_, err := before.Enqueue(t.Context(), durable.NewJob[int]("mail").New(1))
	require.NoError(t, err)
	require.Regexp(t, `stored (1h0m0s|59m\d+s) from now: the machine's clock has been set back`, found(t, after)["clock"])
	require.NotContains(t, found(t, before), "clock")
}

func TestExamineFindsADamagedFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	st, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.NoError(t, err)
	migrate(t, st)
	runs := make([]store.NewRun, 2000)
	for i := range runs {
		runs[i] = durable.NewJob[int]("j").New(i, durable.After(time.Hour))
	}
	_, err = st.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	st.Close()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	for page := info.Size()/4096 - 20; page < info.Size()/4096; page++ { // of runs, which were stored last
		_, err = file.WriteAt([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), page*4096)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
	st = open(t, path, sqlite.Config{})
	require.Contains(t, found(t, st)["integrity"], "failed: quick_check: ")
}
