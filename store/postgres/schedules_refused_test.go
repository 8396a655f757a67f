package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// What the server refuses, and what it has already, lies beside what is good.
func TestSchedulesTheServerRefusesStopNoOther(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	declaration := store.Declaration{Worker: worker("w")}
	for _, name := range []string{"bad", "good", "stored"} {
		declaration.Schedules = append(declaration.Schedules, store.Schedule{
			Name: name, Hash: "h", Job: "tick", Queue: "default", MaxAttempts: 1, Args: json.RawMessage("{}"), Rule: store.Every(time.Hour),
		})
	}
	require.NoError(t, s.Declare(t.Context(), declaration))
	keys := map[string]string{"bad": "first", "good": "first", "stored": "first"}
	fire := func(now time.Time, one store.Schedule) store.Decision {
		return store.Decision{NextAt: now, Occurrences: []store.Occurrence{{Key: keys[one.Name], Run: one.RunNow()}}}
	}
	made, err := s.Materialize(t.Context(), 10, fire)
	require.NoError(t, err)
	require.Len(t, made.Runs, 3)

	keys = map[string]string{"bad": "no text: \x00", "good": "second", "stored": "first"}
	made, err = s.Materialize(t.Context(), 10, fire)
	require.NoError(t, err)
	require.Len(t, made.Runs, 1)
	record, err := s.Run(t.Context(), made.Runs[0])
	require.NoError(t, err)
	require.Equal(t, "good", *record.Schedule)

	schedules, err := s.ListSchedules(t.Context())
	require.NoError(t, err)
	require.Len(t, schedules, 3)
	for _, one := range schedules {
		require.Equal(t, one.Name == "bad", one.Fault != nil, "the fault of %s: %v", one.Name, one.Fault)
	}
}
