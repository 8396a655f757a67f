package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// parked enqueues a run, which records a step and then waits for the input "go".
func parked(t *testing.T, s *sqlite.Store) store.RunID {
	t.Helper()
	_, err := s.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	id, runs := claim(t, s, 1)
	require.Len(t, runs, 1)
	holder := store.Holder{Run: runs[0].ID, Claim: id}
	verdicts, err := s.RecordSteps(t.Context(), []store.NewStep{{Holder: holder, Name: "charge", Kind: store.StepDone, Value: []byte(`1`)}})
	require.NoError(t, err)
	require.Equal(t, []store.StepVerdict{store.StepStored}, verdicts)
	_, err = s.BeginWait(t.Context(), store.NewWait{Holder: holder, Name: "go", Kind: store.StepInput})
	require.NoError(t, err)
	settled := []store.Settled{{ID: holder.Run, Outcome: store.Outcome{Kind: store.Snoozed, After: time.Hour}}}
	_, err = s.Settle(t.Context(), []store.Settlement{{Claim: id, Worker: worker(), Runs: settled, Last: true}})
	require.NoError(t, err)
	return holder.Run
}

func goAhead(run store.RunID) store.NewInput {
	return store.NewInput{Run: run, Name: "go", Value: []byte(`1`)}
}

// The store does not see when a transaction of the user's is committed.
func TestTx_ListenersHearOfInputsAfterTheCommit(t *testing.T) {
	t.Parallel()
	s, _ := openMigrated(t)
	run := parked(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	began, heard, ended := make(chan struct{}, 1), make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- s.Listen(ctx, func(signal store.Signal) {
			switch signal.Kind {
			case store.RunEnded:
				select {
				case began <- struct{}{}:
				default:
				}
			case store.NoticesLeft:
				heard <- struct{}{}
			default:
			}
		})
	}()
	<-began
	tx := begin(t, own(t, s))
	_, err := s.WithTx(tx).Send(t.Context(), goAhead(run))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	select {
	case <-heard:
	case <-time.After(time.Minute):
		require.Fail(t, "no listener hears of the input")
	}
	released, err := s.Release(t.Context(), store.ReleaseRequest{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 1, released.Released)
	cancel()
	require.NoError(t, <-ended)
}

func TestTx_StepsAndInputsAreAConflictMeanwhile(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{LockTimeout: 50 * time.Millisecond})
	migrate(t, s)
	holder := store.Holder{Run: store.NewRunID(), Claim: lease.NewClaimID()}
	tx := begin(t, own(t, s))
	for what, call := range map[string]func() error{
		"RecordSteps": func() error {
			_, err := s.RecordSteps(t.Context(), []store.NewStep{{Holder: holder, Name: "a", Kind: store.StepDone}})
			return err
		},
		"BeginWait": func() error {
			_, err := s.BeginWait(t.Context(), store.NewWait{Holder: holder, Name: "a", Kind: store.StepSleep})
			return err
		},
		"GiveUp": func() error { _, err := s.GiveUp(t.Context(), holder, "a"); return err },
		"Send":   func() error { _, err := s.Send(t.Context(), goAhead(holder.Run)); return err },
	} {
		require.ErrorIs(t, call(), store.ErrConflict, what)
	}
	require.NoError(t, tx.Rollback())
}

// A run that SQLite does not change keeps its notice, and no other waits for it.
func TestReleaseGoesAroundARunThatCannotBeChanged(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	bad, good := parked(t, s), parked(t, s)
	refuse(t, db, "UPDATE", "runs", "old.id = "+hex(bad)+" AND new.due_at < old.due_at")
	for _, run := range []store.RunID{bad, good} {
		_, err := s.Send(t.Context(), goAhead(run))
		require.NoError(t, err)
	}
	_, claimed := claim(t, s, 10)
	require.Len(t, claimed, 1)
	require.Equal(t, good, claimed[0].ID)
	_, err := db.Exec("DROP TRIGGER refuse_update_runs")
	require.NoError(t, err)
	advance(10 * time.Second)
	released, err := s.Release(t.Context(), store.ReleaseRequest{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, store.ReleaseResult{Taken: 1, Released: 1, Next: -1}, released)
}

// What a run has recorded goes with it, not all of it in one step of the sweep: a step holds
// the file's lock.
func TestSweepDeletesWhatRunsHaveRecorded(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	runs := finish(t, s, 20, store.Success)
	for i := range runs {
		_, err := db.Exec("INSERT INTO steps (run_id, at, tries, kind, name, value) VALUES (?, 0, 0, 1, 'a', zeroblob(1 << 20))", runs[i].ID[:])
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO inputs (run_id, at, size, name, digest, value) VALUES (?, 0, 1 << 20, 'a', 'x', zeroblob(1 << 20))", runs[i].ID[:])
		require.NoError(t, err)
	}
	advance(100 * time.Hour)
	request := store.SweepRequest{By: uuid.New(), Retention: 24 * time.Hour, RetentionDead: 48 * time.Hour, Limit: 1000}
	first, err := s.Sweep(t.Context(), request)
	require.NoError(t, err)
	require.Positive(t, first.Deleted)
	require.Less(t, first.Deleted, 10)
	require.False(t, first.Done)
	require.Equal(t, 2*(20-first.Deleted), count(t, db, "SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM inputs)"))
	for done := false; !done; {
		swept, err := s.Sweep(t.Context(), request)
		require.NoError(t, err)
		done = swept.Done
	}
	require.Zero(t, count(t, db, "SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM inputs) + (SELECT count(*) FROM runs)"))
}
