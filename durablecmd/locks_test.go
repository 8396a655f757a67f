package durablecmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/redistest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/backend"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{
		"database": nil,
		"redis":    {"DURABLE_REDIS_URL=" + redistest.Socket(t).URL(), "DURABLE_SCHEMA=verb_" + lease.NewClaimID().Short()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := file(t, more...)
			require.Equal(t, 0, execute(t, env, "migrate", "up").code)
			held := lock.Request{Name: "nightly report", Slots: 1, Claim: lease.NewClaimID(), Owner: "host-1", Duration: time.Minute}
			locks := locksOf(t, env)
			answer, err := locks.Acquire(t.Context(), held)
			require.NoError(t, err)
			require.True(t, answer.Granted)

			e := execute(t, env, "locks", "list")
			require.Equal(t, 0, e.code, e.stderr)
			require.Contains(t, e.stdout, "nightly report  0     host-1")
			require.NotContains(t, e.stdout, "%!")
			type list struct{ Locks []lock.Record }
			listed := decode[list](t, execute(t, env, "locks", "list", "night", "--json").stdout).Locks
			require.Len(t, listed, 1)
			require.Equal(t, answer.Fence, listed[0].Fence)

			waiter := lock.Wait{Name: "nightly report", Waiter: lease.NewClaimID(), Owner: "host-2", Calls: 3}
			require.NoError(t, locks.NoteWait(t.Context(), waiter, time.Minute))
			require.Contains(t, execute(t, env, "locks", "list").stdout, "nightly report  host-2  3")
			type waits struct{ Waits []lock.Wait }
			require.Equal(t, 3, decode[waits](t, execute(t, env, "locks", "list", "--json").stdout).Waits[0].Calls)
			waiter.Calls = 0
			require.NoError(t, locks.NoteWait(t.Context(), waiter, time.Minute))

			e = execute(t, env, "locks", "release", "nightly report")
			require.Equal(t, 2, e.code, "a reason is asked for")
			e = execute(t, env, "locks", "release", "nightly report", "--by", "ada", "--reason", "its host is gone")
			require.Equal(t, 0, e.code, e.stderr)
			require.Equal(t, "released nightly report, slot 0\n", e.stdout)
			renewed, err := locks.Renew(t.Context(), []lease.ClaimID{held.Claim}, time.Minute)
			require.NoError(t, err)
			require.Empty(t, renewed, "the old holder is fenced out")
			e = execute(t, env, "locks", "release", "nightly report", "--reason", "again", "--json")
			require.Equal(t, 1, e.code)
			require.Equal(t, "not_found", decode[failure](t, e.stderr).Error.Code)

			require.Equal(t, "no locks are held\n", execute(t, env, "locks", "list").stdout)
			type forced struct{ Forced []lock.ForceRecord }
			deeds := decode[forced](t, execute(t, env, "locks", "forced", "--json").stdout).Forced
			require.Len(t, deeds, 1)
			require.Equal(t, "ada", deeds[0].By)
			require.Equal(t, "host-1", deeds[0].Owner)
			require.Contains(t, execute(t, env, "locks", "forced").stdout, "its host is gone")
		})
	}
}

// locksOf opens the locks that an environment names.
func locksOf(t *testing.T, env []string) lock.Locks {
	t.Helper()
	values := map[string]string{}
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		values[name] = value
	}
	if address := values["DURABLE_REDIS_URL"]; address != "" {
		locks, err := backend.OpenRedisLocks(t.Context(), address, values["DURABLE_SCHEMA"])
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		return locks
	}
	store, err := backend.Open(t.Context(), values["DURABLE_DATABASE_URL"], backend.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store.Locks()
}

func TestRedisURL(t *testing.T) {
	t.Parallel()
	e := execute(t, file(t, "DURABLE_REDIS_URL=http://u:canary@h"), "config")
	require.Equal(t, 2, e.code)
	require.Contains(t, e.stderr, "DURABLE_REDIS_URL: want redis://")
	require.NotContains(t, e.stderr, "canary")
	e = execute(t, file(t, "DURABLE_REDIS_URL=redis://u:canary@h:1"), "config")
	require.Equal(t, 0, e.code, e.stderr)
	require.NotContains(t, e.stdout, "canary")
	env := file(t, "DURABLE_REDIS_URL=redis://u:canary@127.0.0.1:1")
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	e = execute(t, env, "locks", "list")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "open redis")
	require.NotContains(t, e.stderr, "canary")
}
