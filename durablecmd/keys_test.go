package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

func TestEnqueueWithKeys(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	enqueue := func(line string) ended {
		t.Helper()
		e := execute(t, env, append([]string{"enqueue", "sleep"}, strings.Fields(line)...)...)
		require.Equal(t, 0, e.code, e.stderr)
		return e
	}
	first := enqueue(`--unique a --args {"for":"1s"}`)
	require.NotContains(t, first.stderr, "exists")
	id := strings.TrimSpace(first.stdout)
	again := enqueue("--unique a --unique-for 1h")
	require.Equal(t, first.stdout, again.stdout)
	require.Contains(t, again.stderr, "run "+id+" already exists, nothing was stored")
	require.JSONEq(t, `{"id":"`+id+`","existing":true}`, enqueue("--unique a --json").stdout)
	require.Contains(t, execute(t, env, "runs", "show", id).stdout, "unique key  a")
	key := "a"
	require.Equal(t, &key, decode[durable.Record](t, execute(t, env, "runs", "show", id, "--json").stdout).Key)

	changed := enqueue(`--replace a --args {"for":"2s"}`)
	require.Equal(t, first.stdout, changed.stdout)
	require.Contains(t, changed.stderr, "has been given these args")
	require.JSONEq(t, `{"for":"2s"}`, string(decode[durable.Record](t, execute(t, env, "runs", "show", id, "--json").stdout).Args))

	waits := enqueue("--debounce b --quiet 1h --at-most 2h")
	require.NotContains(t, waits.stderr, "exists")
	require.Equal(t, waits.stdout, enqueue("--debounce b --quiet 1h").stdout)
	require.NotEqual(t, first.stdout, waits.stdout)

	for _, line := range []string{
		"--unique a --replace b", "--unique-for 1h", "--debounce b", "--quiet 1s", "--at-most 1s --unique a", "--unique=", "--unique a --unique-for -1s",
		"--debounce b --quiet 2s --at-most 1s", "--debounce b --quiet 2s --in 1m",
	} {
		e := execute(t, env, append([]string{"enqueue", "sleep"}, strings.Fields(line)...)...)
		require.Equal(t, 2, e.code, "%s: %s", line, e.stderr)
		require.Empty(t, e.stdout, line)
	}
}
