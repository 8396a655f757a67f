package sqlite_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// claimDue claims one run that is due.
func claimDue(t *testing.T, s store.Store) lease.ClaimID {
	t.Helper()
	heads, err := s.Heads(t.Context(), store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	require.NoError(t, err)
	require.Len(t, heads, 1)
	request := store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w", Instance: uuid.New()}, Duration: 5 * time.Minute,
		Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}}, Limit: 1,
	}
	runs, err := s.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	return request.Claim
}

// The machine's clock is set back by an hour, between one process and the next.
func TestProcessesAgreeOnTheTimeWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before := open(t, path, sqlite.Config{})
	migrate(t, before)
	_, err := before.Enqueue(t.Context(), durable.NewJob[int]("mail").New(1), durable.NewJob[int]("mail").New(2))
	require.NoError(t, err)
	old := claimDue(t, before)
	after := open(t, path, sqlite.Config{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	fresh := claimDue(t, after) // what was due is due
	for _, s := range []*sqlite.Store{before, after} {
		done, err := s.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		require.NoError(t, err)
		require.Zero(t, done.Leases, "no one has crashed")
		require.InDelta(t, time.Now().UnixMilli(), done.Now.UnixMilli(), 60_000)
	}
	renewed, err := after.Renew(t.Context(), []lease.ClaimID{old, fresh}, 5*time.Minute)
	require.NoError(t, err)
	require.Len(t, renewed, 2)
}

// A time that no one can have meant does not stay for good.
func TestTimeThatIsFarAheadIsLeftBehind(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before := open(t, path, sqlite.Config{Clock: func() time.Time { return time.Now().AddDate(70, 0, 0) }})
	migrate(t, before)
	_, err := before.Enqueue(t.Context(), durable.NewJob[int]("mail").New(1))
	require.NoError(t, err)
	before.Close()
	var log strings.Builder
	after := open(t, path, sqlite.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	receipts, err := after.Enqueue(t.Context(), durable.NewJob[int]("mail").New(2))
	require.NoError(t, err)
	record, err := after.Run(t.Context(), receipts[0].ID)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), record.DueAt, time.Minute)
	require.Contains(t, log.String(), "far ahead of this machine's clock")
	after.Close()
	log.Reset()
	last := open(t, path, sqlite.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err = last.Enqueue(t.Context(), durable.NewJob[int]("mail").New(3))
	require.NoError(t, err)
	require.NotContains(t, log.String(), "far ahead")
}
