package dashboard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestThePageOfARunShowsItsOccurrence(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		s := newSite(t, db)
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		monthly := store.Schedule{Name: "monthly", Rule: store.Cron("0 0 1 * *", "Europe/Berlin"), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte("{}")}
		require.NoError(t, db.SaveSchedule(t.Context(), monthly, "ann"))
		var run store.NewRun
		_, err = db.Materialize(t.Context(), 10, func(now time.Time, one store.Schedule) store.Decision {
			run = one.RunAt(now)
			at := time.Date(2026, 3, 1, 0, 0, 0, 0, berlin)
			return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "march", At: at, Run: run}}}
		})
		require.NoError(t, err)
		has(t, s.get("runs/"+run.ID.String()), "Occurrence", "Sun 1 Mar 2026 00:00:00 Europe/Berlin")
		requested := store.NewRunID()
		require.NoError(t, db.RunSchedule(t.Context(), "monthly", requested, store.OverlapAllow, "ann"))
		require.NotContains(t, s.get("runs/"+requested.String()), "Occurrence")
	})
}
