package sqlite_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// newMembers are runs of a new batch.
func newMembers(n int) (store.BatchID, []store.NewRun) {
	b := &store.NewBatch{ID: store.NewRunID(), Name: "pages"}
	runs := newRuns(n)
	for i := range runs {
		runs[i].Batch = b
	}
	return b.ID, runs
}

// enqueueMembers stores a batch of so many runs.
func enqueueMembers(t *testing.T, s *sqlite.Store, n int) (store.BatchID, []store.NewRun) {
	t.Helper()
	id, runs := newMembers(n)
	_, err := s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	return id, runs
}

// releaseUntil releases, so many notices at a time, until a condition holds.
func releaseUntil(t *testing.T, s *sqlite.Store, limit int, holds func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := s.Release(t.Context(), store.ReleaseRequest{Limit: limit})
		require.NoError(t, err)
		return holds()
	}, 20*time.Second, time.Millisecond)
}

func counts(t *testing.T, s *sqlite.Store, id store.BatchID) store.BatchCounts {
	t.Helper()
	b, err := s.Batch(t.Context(), id)
	require.NoError(t, err)
	return b.Counts
}

func TestCancellingABatchGoesAroundAMemberThatCannotBeChanged(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	id, runs := enqueueMembers(t, s, 6)
	refuse(t, db, "UPDATE", "runs", "old.id = "+hex(runs[2].ID))
	require.NoError(t, s.CancelBatch(t.Context(), store.BatchCancel{ID: id, Reason: "wrong file"}))
	releaseUntil(t, s, 100, func() bool { return counts(t, s, id) == store.BatchCounts{Members: 6, Cancelled: 5} })
	_, err := db.Exec("DROP TRIGGER refuse_UPDATE_runs")
	require.NoError(t, err)
	releaseUntil(t, s, 100, func() bool { return counts(t, s, id) == store.BatchCounts{Members: 6, Cancelled: 6} })
}

func TestReleaseGoesAroundABatchThatCannotBeChanged(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	refused, _ := enqueueMembers(t, s, 1)
	sound, _ := enqueueMembers(t, s, 1)
	refuse(t, db, "UPDATE", "batches", "old.id = "+hex(refused)+" AND new.state <> old.state")
	id, claimed := claim(t, s, 2)
	_, err := s.Settle(t.Context(), succeed(id, claimed))
	require.NoError(t, err)
	state := func(id store.BatchID) store.BatchState {
		b, err := s.Batch(t.Context(), id)
		require.NoError(t, err)
		return b.State
	}
	releaseUntil(t, s, 1, func() bool { return state(sound) == store.BatchSucceeded })
	result, err := s.Release(t.Context(), store.ReleaseRequest{Limit: 100})
	require.NoError(t, err)
	require.NotZero(t, result.Next, "the other one rests")
	_, err = db.Exec("DROP TRIGGER refuse_UPDATE_batches")
	require.NoError(t, err)
	releaseUntil(t, s, 100, func() bool { return state(refused) == store.BatchSucceeded })
}

func TestALargeBatchIsCancelledInPortionsAndForgottenWithItsMembers(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	const members = 1050
	id, _ := enqueueMembers(t, s, members)
	require.NoError(t, s.CancelBatch(t.Context(), store.BatchCancel{ID: id}))
	noticed := count(t, db, "SELECT count(*) FROM notices")
	require.Less(t, noticed, 100, "no release takes them all")
	releaseUntil(t, s, 300, func() bool { return counts(t, s, id) == store.BatchCounts{Members: members, Cancelled: members} })
	releaseUntil(t, s, 300, func() bool { b, _ := s.Batch(t.Context(), id); return b.State == store.BatchCancelled })
	request := store.SweepRequest{By: uuid.New(), Retention: time.Second, RetentionDead: time.Second, Limit: 1000}
	sweep := func() {
		advance(2 * time.Hour)
		for done := false; !done; {
			swept, err := s.Sweep(t.Context(), request)
			require.NoError(t, err)
			require.Empty(t, swept.SetAside)
			done = swept.Done
		}
	}
	sweep()
	require.Zero(t, count(t, db, "SELECT count(*) FROM members"))
	_, err := s.Batch(t.Context(), id)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, members, count(t, db, "SELECT count(*) FROM runs"), "they are swept when their batch is gone")
	sweep()
	require.Zero(t, count(t, db, "SELECT count(*) FROM runs"))
}

func TestOnlyAMemberThatMattersMakesItsBatchDue(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	enqueueMembers(t, s, 3)
	due := func() int { return count(t, db, "SELECT count(*) FROM batches WHERE due_at IS NOT NULL") }
	require.Zero(t, due(), "it was decided about with its enqueue")
	for want := range 3 {
		require.Zero(t, due(), "%d of three have ended", want)
		id, claimed := claim(t, s, 1)
		_, err := s.Settle(t.Context(), succeed(id, claimed))
		require.NoError(t, err)
	}
	require.Equal(t, 1, due(), "all have ended")
}

func TestAMemberThatIsRetriedAfterItsBatchWasCancelledIsCancelled(t *testing.T) {
	s, _, _ := sweepable(t, newPath(t))
	id, runs := enqueueMembers(t, s, 2)
	_, claimed := claim(t, s, 1) // executes on, so that the batch does not end
	other := runs[0].ID
	if claimed[0].ID == other {
		other = runs[1].ID
	}
	require.NoError(t, s.CancelBatch(t.Context(), store.BatchCancel{ID: id, Reason: "wrong file"}))
	cancelled := func() bool { return counts(t, s, id) == store.BatchCounts{Members: 2, Cancelled: 1} }
	releaseUntil(t, s, 100, cancelled)
	changed, err := s.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: []store.RunID{other}, By: "eva"})
	require.NoError(t, err)
	require.Equal(t, store.RunChanged, changed[0].Result)
	require.Equal(t, store.BatchCounts{Members: 2}, counts(t, s, id))
	releaseUntil(t, s, 100, cancelled)
	record, err := s.Run(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, "wrong file", *record.Error)
}

func TestARunThatIsAddedInATransactionCountsWithItsCommit(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	id, runs := newMembers(2)
	for _, commits := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.WithTx(tx).Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		if !commits {
			require.NoError(t, tx.Rollback())
			_, err = s.Batch(t.Context(), id)
			require.ErrorIs(t, err, store.ErrNotFound)
			continue
		}
		require.NoError(t, tx.Commit())
	}
	require.Equal(t, store.BatchCounts{Members: 2}, counts(t, s, id))
	closed := newRuns(1)
	closed[0].Batch = &store.NewBatch{ID: id, Name: "pages"}
	_, err := s.Enqueue(t.Context(), closed...)
	require.ErrorIs(t, err, store.ErrConflict)
}
