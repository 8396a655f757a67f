package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOperatingVerbs(t *testing.T) {
	t.Parallel()
	env := file(t)
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
		Runs []struct{ ID, Did, State string }
	}
	first, second := enqueue(), enqueue("--queue", "slow")
	got := decode[runs](t, do(0, "runs", "cancel", first, "--reason", "why not", "--json").stdout)
	require.Equal(t, "done", got.Runs[0].Did)
	require.Equal(t, "cancelled", got.Runs[0].State)
	require.Contains(t, do(0, "runs", "cancel", first).stdout, "unchanged  cancelled")
	e := do(1, "runs", "retry", first, "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "--json")
	require.Equal(t, "not_found", decode[failure](t, e.stderr).Error.Code)
	require.Equal(t, "done", decode[runs](t, e.stdout).Runs[0].Did)
	again := strings.TrimSpace(do(0, "runs", "rerun", first, "--args", `{"for":"1s"}`).stdout)
	require.Contains(t, do(0, "runs", "show", again).stdout, `{"for":"1s"}`)

	type counts struct {
		Counts map[string]struct {
			N         int64
			Estimated bool
		}
	}
	require.EqualValues(t, 3, decode[counts](t, do(0, "runs", "count", "--json").stdout).Counts["pending"].N)
	require.Contains(t, do(0, "runs", "count").stdout, "pending    3")

	type bulk struct {
		Seen, Done int
	}
	require.Equal(t, bulk{1, 1}, decode[bulk](t, do(0, "runs", "cancel", "--all", "--yes", "--queue", "slow", "--json").stdout))
	require.Equal(t, "retry: 1 runs matched, 1 done\n", do(0, "runs", "retry", "--all", "--yes").stdout)
	require.Equal(t, bulk{3, 3}, decode[bulk](t, do(0, "runs", "delete", "--all", "--yes", "--state", "pending", "--json").stdout))
	do(1, "runs", "delete", second)

	do(0, "queues", "pause", "slow")
	require.Regexp(t, `slow +paused +0 +-`, do(0, "queues", "list").stdout)
	type queues struct {
		Queues []struct {
			Name   string
			Paused bool
		}
	}
	require.Len(t, decode[queues](t, do(0, "queues", "list", "--json").stdout).Queues, 2)
	do(0, "queues", "resume", "slow", "--json")
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
	require.Equal(t, []string{"delete", "rerun", "retry", "cancel"}, actions)
	require.Contains(t, do(0, "audit", "list", "--limit", "2").stdout, "more: --cursor")
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
}
