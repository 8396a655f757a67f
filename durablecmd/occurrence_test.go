package durablecmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

func TestRunsShowTheirOccurrence(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	require.Equal(t, 0, execute(t, env, command("schedules create monthly log --force --cron 0_0_1_*_* --zone Europe/Berlin")...).code)
	db, err := backend.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL="), backend.Config{})
	require.NoError(t, err)
	defer db.Close()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	var run store.NewRun
	_, err = db.Materialize(t.Context(), 10, func(now time.Time, one store.Schedule) store.Decision {
		run = one.RunAt(now)
		at := time.Date(2026, 3, 1, 0, 0, 0, 0, berlin)
		return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "march", At: at, Run: run}}}
	})
	require.NoError(t, err)
	show := func(id string) string { return execute(t, env, "runs", "show", id).stdout }
	require.Contains(t, show(run.ID.String()), "occurrence  2026-03-01T00:00:00+01:00[Europe/Berlin]")
	shown := decode[durable.Record](t, execute(t, env, "runs", "show", run.ID.String(), "--json").stdout)
	require.Equal(t, "2026-03-01T00:00:00+01:00", shown.Occurrence.Format(time.RFC3339))
	again := execute(t, env, "runs", "rerun", run.ID.String())
	require.Equal(t, 0, again.code, again.stderr)
	id := again.stdout[len(again.stdout)-37 : len(again.stdout)-1]
	require.Contains(t, show(id), "occurrence  2026-03-01T00:00:00+01:00[Europe/Berlin]", again.stdout)
	requested := strings.TrimSpace(execute(t, env, command("schedules run-now monthly --force")...).stdout)
	require.NotContains(t, show(requested), "occurrence")
}
