package durablecmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// command splits a line into words; _ means a space inside one.
func command(line string) []string {
	words := strings.Fields(line)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "_", " ")
	}
	return words
}

func TestSchedulesAreOperated(t *testing.T) {
	t.Parallel()
	env := file(t)
	do := func(line string) string {
		t.Helper()
		e := execute(t, env, command(line)...)
		require.Equal(t, 0, e.code, "%s: %s", line, e.stderr)
		return e.stdout
	}
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	require.Equal(t, "no schedules\n", do("schedules list"))
	require.Contains(t, do("schedules create nightly log --force --cron 0_3_*_*_1-5 --zone Europe/Berlin --blackout sat,sun --overlap wait"),
		"nightly created, next 2")
	shown := decode[store.ScheduleRecord](t, do("schedules show nightly --json"))
	require.Equal(t, durable.Cron("0 3 * * 1-5", "Europe/Berlin"), shown.Rule)
	require.Equal(t, durable.OverlapWait, shown.Plan.Overlap)
	require.Equal(t, []durable.Window{{Days: "sat,sun"}}, shown.Plan.Blackouts)

	do("schedules set nightly --every 10m --blackout none --args {\"a\":1} --catch-up all --catch-up-within 1h")
	shown = decode[store.ScheduleRecord](t, do("schedules show nightly --json"))
	require.Equal(t, durable.Every(10*time.Minute).In("Europe/Berlin"), shown.Rule)
	require.Empty(t, shown.Plan.Blackouts)
	require.Equal(t, durable.OverlapWait, shown.Plan.Overlap, "what is not given stays")
	require.JSONEq(t, `{"a":1}`, string(shown.Args))

	id := strings.TrimSpace(do("schedules run-now nightly"))
	require.Contains(t, do("runs show "+id), "nightly")
	e := execute(t, env, "schedules", "run-now", "nightly")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "has not ended")
	do("schedules run-now nightly --force")

	do("schedules pause nightly")
	require.Contains(t, do("schedules list"), "paused by")
	require.Contains(t, do("schedules preview nightly"), "no next occurrence")
	do("schedules resume nightly")
	seen := decode[struct {
		Next []time.Time
		Past []store.HistoryEntry
	}](t, do("schedules preview nightly --json --next 3 --past 100"))
	require.Len(t, seen.Next, 3)
	require.Len(t, seen.Past, 2+6, "two runs; created, edited, twice run, paused, resumed")
	list := decode[struct{ Schedules []store.ScheduleRecord }](t, do("schedules list --json"))
	require.Len(t, list.Schedules, 1)
	do("schedules set nightly --end 2001-01-01T00:00:00Z")
	require.Contains(t, do("schedules preview nightly"), "over: no next occurrence")
	require.Contains(t, do("schedules list"), "over")
	do("schedules set nightly --end 0001-01-01T00:00:00Z")
	require.Contains(t, do("schedules list"), "active")
	do("schedules create far log --force --once 9999-12-31T23:59:59Z")
	require.Contains(t, do("schedules preview far"), "in 106751d", "as far as a duration goes")
	do("schedules delete far")
	do("schedules delete nightly")
	require.Equal(t, "no schedules\n", do("schedules list"))
}

func TestSchedulesAreOperatedInJSON(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	do := func(line string) string {
		t.Helper()
		e := execute(t, env, command("schedules "+line+" --json")...)
		require.Equal(t, 0, e.code, "%s: %s", line, e.stderr)
		return e.stdout
	}
	require.Equal(t, "nightly", decode[store.ScheduleRecord](t, do("create nightly log --force --every 1h")).Name)
	require.Equal(t, durable.Every(2*time.Hour), decode[store.ScheduleRecord](t, do("set nightly --every 2h")).Rule)
	require.True(t, decode[store.ScheduleRecord](t, do("pause nightly")).Paused)
	require.False(t, decode[store.ScheduleRecord](t, do("resume nightly")).Paused)
	made := decode[struct {
		ID       durable.RunID
		Schedule string
	}](t, do("run-now nightly"))
	require.Equal(t, "nightly", made.Schedule)
	require.Equal(t, 0, execute(t, env, "runs", "show", made.ID.String()).code)
	require.JSONEq(t, `{"name":"nightly","deleted":true}`, do("delete nightly"))
	for _, line := range []string{"set", "pause", "resume", "run-now", "delete"} {
		e := execute(t, env, "schedules", line, "nightly", "--json")
		require.Equal(t, 1, e.code)
		require.Equal(t, "not_found", decode[failure](t, e.stderr).Error.Code, line)
	}
}

func TestSchedulesRefuse(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	require.Equal(t, 0, execute(t, env, command("schedules create taken log --force --every 1m")...).code)
	for line, want := range map[string]string{
		"schedules show none":                                                  "not found",
		"schedules preview none":                                               "not found",
		"schedules set none --every 1m":                                        "not found",
		"schedules pause none":                                                 "not found",
		"schedules run-now none":                                               "not found",
		"schedules create taken log --force --every 1m":                        "schedules set",
		"schedules create a log --force --once 2020-01-01T00:00:00Z":           "has passed",
		"schedules create a log --force --every 1h --end 2001-01-01T00:00:00Z": "has passed",
		"schedules create a log --force --every 0":                             "no rule",
		"schedules set taken":                                                  "nothing to change",
		"schedules set taken --json":                                           "nothing to change",
		"schedules set taken --max-unfinished 0":                               "want 1 to 1000",
		"schedules set taken --end 1960-01-01T00:00:00Z":                       "1970",
		"schedules create a none --every 1m":                                   "unknown job",
		"schedules create a log --force":                                       "no rule",
		"schedules create a log --force --cron 61_*_*_*_*":                     "want five fields",
		"schedules create a log --force --cron 0_0_30_2_*":                     "never fires",
		"schedules create a log --force --every 1m --cron @daily":              "--cron",
		"schedules create a log --force --cron @daily --zone X/Y":              "Europe/Berlin",
		"schedules set taken --catch-up some":                                  "skip, latest or all",
		"schedules set taken --catch-up all --overlap skip":                    "want overlap wait or allow",
		"schedules set taken --blackout a/b/c/d":                               "2026-12-24",
		"schedules set taken --jitter 2m":                                      "jitter 2m",
		"schedules preview taken --next 1001":                                  "want 0 to 1000",
		"schedules set taken --start 2030-01-01T00:00:00Z --every 10x":         "--every",
	} {
		e := execute(t, env, command(line)...)
		require.NotEqual(t, 0, e.code, line)
		require.Empty(t, e.stdout, line)
		require.Contains(t, e.stderr, want, line)
	}
}

// TestSchedulesThatCannotBeEvaluatedAreShown: what became of it is reported all the
// same, and why no next occurrence.
func TestSchedulesThatCannotBeEvaluatedAreShown(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db, err := backend.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL="), backend.Config{})
	require.NoError(t, err)
	bad := store.Schedule{Name: "bad", Hash: "h", Job: "log", Queue: "default", MaxAttempts: 1, Args: []byte("{}"), Rule: durable.Cron("0 0 30 2 *", "")}
	worker := store.WorkerID{Name: "w", Instance: uuid.New()}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: worker, Schedules: []store.Schedule{bad}}))
	db.Close()
	e := execute(t, env, "schedules", "preview", "bad")
	require.Equal(t, 0, e.code, e.stderr)
	require.Contains(t, e.stdout, "faulty: cron \"0 0 30 2 *\" never fires")
	seen := decode[struct{ Fault string }](t, execute(t, env, "schedules", "preview", "bad", "--json").stdout)
	require.Contains(t, seen.Fault, "never fires")
}
