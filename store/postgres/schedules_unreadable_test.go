package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// A spec that a newer program or a person has written stops no reader of the
// others.
func TestScheduleThatCannotBeReadIsListedWithAFault(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	declaration := store.Declaration{Worker: worker("w")}
	for _, name := range []string{"bad", "good"} {
		declaration.Schedules = append(declaration.Schedules, store.Schedule{
			Name: name, Hash: "h", Job: "tick", Queue: "default", MaxAttempts: 1, Args: json.RawMessage("{}"), Rule: store.Every(time.Hour),
		})
	}
	require.NoError(t, s.Declare(t.Context(), declaration))
	s.exec(t, connect(t, s.url), `update %s.schedules set spec = '{"rule": {"cron": 5}}' where name = 'bad'`)

	records, err := s.ListSchedules(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.Contains(t, *records[0].Fault, "spec of schedule bad")
	require.Nil(t, records[1].Fault)
	require.Equal(t, store.Every(time.Hour), records[1].Rule)
	made, err := s.Materialize(t.Context(), 10, func(now time.Time, one store.Schedule) store.Decision {
		require.Equal(t, "good", one.Name, "only what can be read is decided about")
		return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "first", Run: one.RunNow()}}}
	})
	require.NoError(t, err)
	require.Len(t, made.Runs, 1)
	_, err = s.ScheduleHistory(t.Context(), "bad", 10)
	require.NoError(t, err)
	err = s.RunSchedule(t.Context(), "bad", store.NewRunID(), store.OverlapSkip, "ann")
	require.ErrorContains(t, err, "spec of schedule bad", "it is not known whether there is room")
	err = s.RunSchedule(t.Context(), "bad", store.NewRunID(), store.OverlapAllow, "ann")
	require.NoError(t, err)
	require.NoError(t, s.ChangeSchedule(t.Context(), "bad", store.PauseSchedule, "ann"))
	require.NoError(t, s.Declare(t.Context(), declaration))

	edited := records[0].Schedule()
	edited.Rule = store.Every(time.Minute)
	require.NoError(t, s.SaveSchedule(t.Context(), edited, "ann"))
	records, err = s.ListSchedules(t.Context(), "bad")
	require.NoError(t, err)
	require.Nil(t, records[0].Fault)
	require.Equal(t, edited.Rule, records[0].Rule)
}
