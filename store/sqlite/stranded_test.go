package sqlite_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// An operator has deleted the lease of a worker that is gone.
func TestRunsWithoutALeaseAreShownAndHandedBack(t *testing.T) {
	t.Parallel()
	s, db, advance := sweepable(t, newPath(t))
	_, err := s.Enqueue(t.Context(), newRuns(5)...)
	require.NoError(t, err)
	claim(t, s, 2)
	gone, _ := claim(t, s, 3)
	sweep(t, s) // a full pass has just been
	require.Empty(t, found(t, s)["running runs"])
	_, err = db.Exec("DELETE FROM leases WHERE claim_id = ?", gone[:])
	require.NoError(t, err)
	require.Contains(t, found(t, s)["running runs"], "3 have no lease")
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, counts[store.Running].N)
	require.Zero(t, counts[store.Succeeded].N)
	page, err := s.Runs(t.Context(), store.Filter{States: []store.State{store.Running}})
	require.NoError(t, err)
	require.Len(t, page.Runs, 5)
	advance(time.Minute)
	require.Len(t, sweep(t, s).Returned, 3)
	require.Empty(t, found(t, s)["running runs"])
}

// An operator has ended runs by hand and left their rows of ready.
func TestClaimStartsNothingThatIsNotPending(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"ended":   "UPDATE runs SET state = 5, finished_at = 1 WHERE id = ?",
		"deleted": "DELETE FROM runs WHERE id = ?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, log := newPath(t), &bytes.Buffer{}
			s := open(t, path, sqlite.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
			migrate(t, s)
			_, db, _ := sweepable(t, path)
			runs := newRuns(6)
			_, err := s.Enqueue(t.Context(), runs...)
			require.NoError(t, err)
			for _, i := range []int{0, 1, 3} {
				_, err = db.Exec(statement, runs[i].ID[:])
				require.NoError(t, err)
			}
			_, none := claim(t, s, 2)
			require.Empty(t, none, "the first two cannot be started")
			require.Contains(t, log.String(), runs[1].ID.String())
			id, claimed := claim(t, s, 6)
			require.Len(t, claimed, 3)
			require.Contains(t, log.String(), "rows=1")
			require.Zero(t, count(t, db, "SELECT count(*) FROM ready"))
			settlements := succeed(id, claimed)
			settlements[0].Claimed = len(claimed)
			_, err = s.Settle(t.Context(), settlements)
			require.NoError(t, err)
			require.Zero(t, count(t, db, "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM runs WHERE state = 1)"))
		})
	}
}

// A restore in part has lost rows of ready.
func TestSweepPutsPendingRunsBackIntoTheirLine(t *testing.T) {
	t.Parallel()
	s, db, advance := sweepable(t, newPath(t))
	runs := newRuns(250)
	_, err := s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	for i := range 120 {
		_, err = db.Exec("DELETE FROM ready WHERE run_id = ?", runs[i].ID[:])
		require.NoError(t, err)
	}
	require.Equal(t, 120, sweep(t, s).Mended)
	advance(time.Hour)
	require.Zero(t, sweep(t, s).Mended)
	require.Equal(t, 250, count(t, db, "SELECT count(*) FROM ready JOIN runs ON id = run_id WHERE runs.lane = ready.lane AND runs.due_at = ready.due_at"))
}
