package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestRunsHaveTheirOccurrence(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		s := store.Schedule{Name: "monthly", Rule: store.Cron("0 0 1 * *", "Europe/Berlin"), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte("{}")}
		require.NoError(t, b.store.SaveSchedule(t.Context(), s, "ann"))
		var run store.NewRun
		_, err = b.store.Materialize(t.Context(), 10, func(now time.Time, one store.Schedule) store.Decision {
			run = one.RunAt(now)
			at := time.Date(2026, 3, 1, 0, 0, 0, 0, berlin)
			return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "march", At: at, Run: run}}}
		})
		require.NoError(t, err)
		const march = "2026-03-01T00:00:00+01:00"
		one := b.want(200, "GET", "/runs/"+run.ID.String(), "")
		require.Equal(t, march, one["occurrence"])
		require.Equal(t, march, b.want(200, "GET", "/runs", "")["runs"].([]any)[0].(map[string]any)["occurrence"])
		again := b.want(201, "POST", "/runs/"+run.ID.String()+"/rerun", "{}")["id"].(string)
		one = b.want(200, "GET", "/runs/"+again, "")
		require.Equal(t, march, one["occurrence"], "a rerun is for the same month")
		require.Nil(t, one["schedule"])
		requested := b.want(202, "POST", "/schedules/run-now", `{"name":"monthly","overlap":"allow"}`)["id"].(string)
		one = b.want(200, "GET", "/runs/"+requested, "")
		require.Contains(t, one, "occurrence")
		require.Nil(t, one["occurrence"])
	})
}
