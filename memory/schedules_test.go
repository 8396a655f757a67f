package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/memory"
)

// What was due when a schedule was paused is recorded as passed over, and not
// made into runs by a look that had begun before.
func TestMaterialize_LeavesWhatWasPausedAndResumedMeanwhile(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	require.NoError(t, store.Declare(t.Context(), durable.Declaration{
		Worker: durable.WorkerID{Instance: durable.NewRunID(), Name: "w"},
		Schedules: []durable.Schedule{{Name: "tick", Hash: "1", Rule: durable.Every(time.Hour), Job: "mail", Queue: durable.DefaultQueue,
			Args: []byte("{}"), MaxAttempts: 1}},
	}))
	due := time.Now().Add(-time.Second).UTC()
	plan := func(time.Time, durable.Schedule) durable.Decision { return durable.Decision{NextAt: due} }
	_, err := store.Materialize(t.Context(), 1, plan)
	require.NoError(t, err)

	made, err := store.Materialize(t.Context(), 1, func(_ time.Time, s durable.Schedule) durable.Decision {
		require.NoError(t, store.ChangeSchedule(t.Context(), s.Name, durable.PauseSchedule, "ann"))
		require.NoError(t, store.ChangeSchedule(t.Context(), s.Name, durable.ResumeSchedule, "ann"))
		run := durable.NewRun{ID: durable.NewRunID(), Job: s.Job, Queue: s.Queue, Args: s.Args, MaxAttempts: 1, At: s.NextAt}
		return durable.Decision{NextAt: due.Add(time.Hour), Occurrences: []durable.Occurrence{{Key: "one", Run: run}}}
	})
	require.NoError(t, err)
	require.Empty(t, made.Runs)
	listed, err := store.ListSchedules(t.Context(), "tick")
	require.NoError(t, err)
	require.Nil(t, listed[0].NextAt, "planned from when it was resumed")
}
