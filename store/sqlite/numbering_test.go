package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// A store settles by the number it remembers from the claim. What it remembers
// decides nothing.
func TestSettleByNumber(t *testing.T) {
	t.Parallel()
	t.Run("a claim that was taken over is refused, and its successor is not", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		now := time.Now()
		s := open(t, path, sqlite.Config{Clock: func() time.Time { return now }})
		migrate(t, s)
		_, err := s.Enqueue(t.Context(), newRuns(3)...)
		require.NoError(t, err)
		stale, runs := claim(t, s, 3)
		now = now.Add(time.Hour)
		_, err = s.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		require.NoError(t, err)
		held, again := claim(t, s, 3)
		require.Len(t, again, 3)
		verdicts, err := s.Settle(t.Context(), succeed(stale, runs))
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Rejected, store.Rejected, store.Rejected}, verdicts)
		verdicts, err = s.Settle(t.Context(), succeed(held, again))
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Applied, store.Applied, store.Applied}, verdicts)
	})
	t.Run("what another store has settled has landed, and the rest is accepted", func(t *testing.T) {
		t.Parallel()
		s, path := openMigrated(t)
		other := open(t, path, sqlite.Config{})
		_, err := s.Enqueue(t.Context(), newRuns(3)...)
		require.NoError(t, err)
		id, runs := claim(t, s, 3)
		first := succeed(id, runs[1:2])
		first[0].Last = false
		_, err = other.Settle(t.Context(), first)
		require.NoError(t, err)
		verdicts, err := s.Settle(t.Context(), succeed(id, runs))
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Applied, store.AlreadyApplied, store.Applied}, verdicts)
	})
	t.Run("a run that is named twice is accepted once", func(t *testing.T) {
		t.Parallel()
		s, _ := openMigrated(t)
		_, err := s.Enqueue(t.Context(), newRuns(200)...)
		require.NoError(t, err)
		id, runs := claim(t, s, 200)
		require.Len(t, runs, 200)
		verdicts, err := s.Settle(t.Context(), succeed(id, append(runs, runs[0])))
		require.NoError(t, err)
		require.Equal(t, store.Applied, verdicts[0])
		require.Equal(t, store.Applied, verdicts[199])
		require.Equal(t, store.AlreadyApplied, verdicts[200])
	})
}
