package durablecmd_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestOperatingVerbs(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	do := func(code int, args ...string) ended {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s", args, e.stderr)
		return e
	}
	enqueue := func(more ...string) string {
		return strings.TrimSpace(do(0, append([]string{"enqueue", "sleep", "--force"}, more...)...).stdout)
	}
	type runs struct {
		Runs []struct{ ID, Result, State string }
	}
	first, second := enqueue(), enqueue("--queue", "slow")
	got := decode[runs](t, do(0, "runs", "cancel", first, "--reason", "why not", "--json").stdout)
	require.Equal(t, "changed", got.Runs[0].Result)
	require.Equal(t, "cancelled", got.Runs[0].State)
	require.Contains(t, do(0, "runs", "cancel", first).stdout, "unchanged  cancelled")
	require.Contains(t, do(0, "runs", "cancel", first[:24]).stdout, first+"  unchanged  cancelled")
	require.Contains(t, do(0, "runs", "show", first[:24]).stdout, first)
	require.Contains(t, do(1, "runs", "show", "0190c5a0").stderr, "no run has an id that begins with 0190c5a0")
	e := do(1, "runs", "retry", first, "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "--json")
	require.Equal(t, "not_found", decode[failure](t, e.stderr).Error.Code)
	require.Equal(t, "changed", decode[runs](t, e.stdout).Runs[0].Result)
	again := strings.TrimSpace(do(0, "runs", "rerun", first, "--args", `{"for":"1s"}`).stdout)
	require.Contains(t, do(0, "runs", "show", again).stdout, `{"for":"1s"}`)

	env = append(env, "DURABLE_REDACT=for")
	require.Contains(t, do(0, "runs", "show", again).stdout, `{"for":"•••"}`)
	require.Contains(t, do(0, "runs", "reveal", again[:24], "--reason", "ticket 4711").stdout, `{"for":"1s"}`)
	require.Contains(t, do(0, "runs", "reveal", again, "--json").stdout, `"for": "1s"`)
	require.Contains(t, do(0, "audit", "list", "--json").stdout, "ticket 4711")
	require.Contains(t, do(1, "runs", "reveal", "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e").stderr, "not found")

	type counts struct {
		Counts map[string]struct {
			N         int64
			Estimated bool
		}
	}
	require.EqualValues(t, 3, decode[counts](t, do(0, "runs", "count", "--json").stdout).Counts["pending"].N)
	require.Contains(t, do(0, "runs", "count").stdout, "pending    3")

	type bulk struct {
		Seen, Changed int
	}
	require.Equal(t, bulk{1, 1}, decode[bulk](t, do(0, "runs", "cancel", "--all", "--yes", "--queue", "slow", "--json").stdout))
	require.Equal(t, "retry: 1 run matched, 1 changed\n", do(0, "runs", "retry", "--all", "--yes").stdout)
	require.Equal(t, bulk{3, 3}, decode[bulk](t, do(0, "runs", "delete", "--all", "--yes", "--state", "pending", "--json").stdout))
	do(1, "runs", "delete", second)

	do(0, "queues", "pause", "slow")
	require.Regexp(t, `slow +paused +0 +0 +- +0 +- +none`, do(0, "queues", "list").stdout)
	type queues struct {
		Queues []struct {
			Name   string
			Paused bool
		}
	}
	require.Len(t, decode[queues](t, do(0, "queues", "list", "--json").stdout).Queues, 2)
	do(0, "queues", "resume", "slow", "--json")
	do(0, "queues", "resume", "slow")
	require.Contains(t, do(1, "queues", "pause", "mial").stderr, `queue "mial": no run was ever enqueued on it and it is not paused`)
	require.Contains(t, do(1, "queues", "resume", "mial").stderr, `queue "mial": no run was ever enqueued on it and it is not paused: not found`)
	require.Len(t, decode[queues](t, do(0, "queues", "list", "--json").stdout).Queues, 2)
	require.Equal(t, "mail paused\n", do(0, "queues", "pause", "mail", "--force").stdout)
	require.Equal(t, "mail resumed\n", do(0, "queues", "resume", "mail").stdout)

	require.Contains(t, do(1, "queues", "set", "mial", "--max-concurrent", "3").stderr, "use --force to set it anyway")
	require.Equal(t, "slow: at most 3 runs execute concurrently, over all workers\n", do(0, "queues", "set", "slow", "--max-concurrent", "3").stdout)
	require.Regexp(t, `slow +active +0 +0 +3 +0 +- +none`, do(0, "queues", "list").stdout)
	require.Contains(t, do(0, "limits", "list", "--caps").stdout, "queue:slow")
	require.JSONEq(t, `{"name":"slow","max_concurrent":null}`, do(0, "queues", "set", "slow", "--no-max-concurrent", "--json").stdout)
	require.Regexp(t, `slow +active +0 +0 +- +0 +- +none`, do(0, "queues", "list").stdout)
	require.Equal(t, "slow: any number of runs execute concurrently\n", do(0, "queues", "set", "slow", "--max-concurrent", "0").stdout)
	do(2, "queues", "set", "slow")
	do(2, "queues", "set", "slow", "--max-concurrent", "-1")
	do(2, "queues", "set", "slow", "--max-concurrent", "3", "--no-max-concurrent")
	type changes struct {
		Changes []struct{ Actor, Kind, Subject, Action string }
		Next    *int64
	}
	audited := decode[changes](t, do(0, "audit", "list", "--kind", "run", "--subject", first, "--json").stdout)
	var actions []string
	for _, c := range audited.Changes {
		require.Contains(t, c.Actor, "@")
		actions = append(actions, c.Action)
	}
	require.Equal(t, []string{"rerun", "retry", "cancel"}, actions)
	require.Contains(t, do(0, "audit", "list", "--limit", "2").stdout, "more: --cursor")
	bulks := do(0, "audit", "list", "--kind", "bulk", "--action", "delete", "--since", "1h").stdout
	require.Contains(t, bulks, `3 runs {"filter":{"states":["pending"]}}`)
	require.Equal(t, 2, strings.Count(bulks, "\n"), bulks)
	require.NotContains(t, do(0, "audit", "list", "--by", "nobody").stdout, "run")
}

func TestOperatingVerbsRefuseWhatIsNotClear(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	id := "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e"
	for _, line := range []string{
		"runs cancel", "runs cancel 7", "runs cancel --all", "runs cancel --yes", "runs retry --state dead", "runs delete --all --yes --state gone",
		"runs delete " + id + " --all --yes", "runs delete " + id + " --job mail", "runs rerun", "runs rerun 7", "queues pause", "queues pause a,b",
		"audit list --limit 0", "runs list --since yesterday", "runs cancel --all --yes --cursor x",
	} {
		e := execute(t, env, strings.Fields(line)...)
		require.Equal(t, 2, e.code, "%s: %s", line, e.stderr)
		require.Empty(t, e.stdout, line)
	}
	for _, flag := range []string{"--state", "--job", "--queue", "--tag", "--cursor"} {
		for _, value := range []string{"", " ", "a,,b", ","} {
			if strings.Contains(value, ",") && (flag == "--tag" || flag == "--cursor") {
				continue
			}
			e := execute(t, env, "runs", "delete", "--all", "--yes", flag, value)
			require.Equal(t, 2, e.code, "%s %q would delete everything", flag, value)
			require.Contains(t, e.stderr, flag)
		}
	}
	for _, words := range [][]string{
		{"enqueue", "sleep", "--id", ""}, {"audit", "list", "--subject", ""}, {"audit", "list", "--kind", "job"}, {"audit", "list", "--cursor", "-1"},
		{"locks", "release", "a", "--reason", ""}, {"enqueue", "sleep", "--args", "\"\xff\""}, {"enqueue", "sleep", "--unique", "k\xff"},
		{"runs", "delete", "--all", "--yes", "--tag", "a\xff"}, {"schedules", "show", "\xff"},
	} {
		e := execute(t, env, words...)
		require.Equal(t, 2, e.code, words)
		if utf8.ValidString(words[len(words)-1]) {
			require.Contains(t, e.stderr, words[len(words)-2])
		} else {
			require.Contains(t, e.stderr, `\xff`)
		}
	}
}

func TestADeletionSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db := storeOf(t, env)
	pendingRuns(t, db, 300, durable.OnQueue("bulk"))
	ended := pendingRuns(t, db, 2)
	_, err := db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{ended[0].ID, ended[1].ID}, By: "ann"})
	require.NoError(t, err)
	do := func(line string) string {
		e := execute(t, env, strings.Fields("runs "+line)...)
		require.Equal(t, 0, e.code, e.stderr)
		return e.stdout
	}
	require.Equal(t, "delete: 0 runs matched\n300 pending runs match too: add --state pending\n", do("delete --all --yes --queue bulk"))
	require.Contains(t, strings.Join(strings.Fields(do("delete --all --yes --queue bulk --json")), ""), `"pending_too":{"n":300}`)
	require.Equal(t, "pending    300\nrunning    0\nsucceeded  0\ndead       0\ncancelled  0\n", do("count --queue bulk"))
	require.Equal(t, "dead       0\ncancelled  2\n", do("count --state dead,cancelled"))

	require.Equal(t, "delete (dry run, nothing is changed): 2 runs matched, 2 changed\n300 pending runs match too: add --state pending\n", do("delete --all --dry-run"))
	require.Equal(t, "delete (dry run, nothing is changed): 300 runs matched, 300 changed\n", do("delete --all --dry-run --state pending"))
	require.Equal(t, "cancel (dry run, nothing is changed): 300 runs matched, 300 changed\n", do("cancel --all --dry-run --since 1h"))
	require.Equal(t, "retry (dry run, nothing is changed): 2 runs matched, 2 changed\n", do("retry --all --dry-run"))
	require.Equal(t, "pending    300\ncancelled  2\n", do("count --state pending,cancelled"))
	require.Equal(t, "delete: 2 runs matched, 2 changed\n300 pending runs match too: add --state pending\n", do("delete --all --yes"))
	require.Equal(t, "delete: 300 runs matched, 300 changed\n", do("delete --all --yes --queue bulk --state pending"))
	require.Equal(t, "no runs\n", do("list"))
	require.Equal(t, 2, execute(t, env, "runs", "delete", "--dry-run", ended[0].ID.String()).code)
}

// interrupter interrupts the program when it reports its progress.
type interrupter struct {
	buffer
	signals chan os.Signal
	once    sync.Once // a second signal would exit
}

func (w *interrupter) Write(text []byte) (int, error) {
	w.once.Do(func() { w.signals <- os.Interrupt })
	return w.buffer.Write(text)
}

func TestABulkVerbThatIsInterruptedSaysWhereToGoOn(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db, err := sqlite.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL=sqlite:"), sqlite.Config{})
	require.NoError(t, err)
	defer db.Close()
	const made = 10_000
	for range made / 1000 {
		runs := make([]durable.NewRun, 1000)
		for i := range runs {
			runs[i] = durable.RunOf(durable.JobInfo{Name: "sleep", Queue: "default", MaxAttempts: 1}, []byte("{}"))
		}
		_, err := durable.NewClient(db).Enqueue(t.Context(), runs...)
		require.NoError(t, err)
	}
	type bulk struct {
		Changed int
		Next    *string
	}
	var stdout buffer
	stderr := &interrupter{signals: make(chan os.Signal, 1)}
	clock := time.Now()
	code := durablecmd.Start{
		Args: []string{"runs", "cancel", "--all", "--yes", "--json"}, Env: env, Stdout: &stdout, Stderr: stderr, Signals: stderr.signals,
		Now: func() time.Time { clock = clock.Add(time.Minute); return clock },
	}.Run(t.Context())
	require.Equal(t, 1, code)
	first := decode[bulk](t, stdout.String())
	require.Positive(t, first.Changed)
	require.NotNil(t, first.Next)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Contains(t, lines[0], " of 10000 runs matched, ")
	failed := decode[failure](t, lines[len(lines)-1]).Error
	require.Equal(t, "interrupted", failed.Code)
	require.Contains(t, failed.Message, "continue with --cursor "+*first.Next)
	e := execute(t, env, "runs", "cancel", "--all", "--yes", "--json", "--cursor", *first.Next)
	require.Equal(t, 0, e.code, e.stderr)
	require.Equal(t, bulk{Changed: made - first.Changed}, decode[bulk](t, e.stdout))
}
