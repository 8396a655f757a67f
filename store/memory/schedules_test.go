package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// What was due when a schedule was paused is recorded as passed over, and not
// made into runs by a look that had begun before.
func TestMaterialize_LeavesWhatWasPausedAndResumedMeanwhile(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	require.NoError(t, db.Declare(t.Context(), store.Declaration{
		Worker: store.WorkerID{Instance: store.NewRunID(), Name: "w"},
		Schedules: []store.Schedule{{Name: "tick", Hash: "1", Rule: store.Every(time.Hour), Job: "mail", Queue: store.DefaultQueue,
			Args: []byte("{}"), MaxAttempts: 1}},
	}))
	due := time.Now().Add(-time.Second).UTC()
	plan := func(time.Time, store.Schedule) store.Decision { return store.Decision{NextAt: due} }
	_, err := db.Materialize(t.Context(), 1, plan)
	require.NoError(t, err)

	made, err := db.Materialize(t.Context(), 1, func(_ time.Time, s store.Schedule) store.Decision {
		require.NoError(t, db.ChangeSchedule(t.Context(), s.Name, store.PauseSchedule, "ann"))
		require.NoError(t, db.ChangeSchedule(t.Context(), s.Name, store.ResumeSchedule, "ann"))
		run := store.NewRun{ID: store.NewRunID(), Job: s.Job, Queue: s.Queue, Args: s.Args, MaxAttempts: 1, At: s.NextAt}
		return store.Decision{NextAt: due.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "one", Run: run}}}
	})
	require.NoError(t, err)
	require.Empty(t, made.Runs)
	listed, err := db.ListSchedules(t.Context(), "tick")
	require.NoError(t, err)
	require.Nil(t, listed[0].NextAt, "planned from when it was resumed")
}
