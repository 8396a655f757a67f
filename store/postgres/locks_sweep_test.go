package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// A name that no one has wanted for a week is forgotten when a new one comes.
func TestLocks_UnusedForAWeek(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	conn, locks := connect(t, s.url), s.Locks()
	take := func(name string, d time.Duration) (lock.Request, lock.Answer) {
		t.Helper()
		r := lock.Request{Name: name, Slots: 1, Claim: lease.NewClaimID(), Duration: d}
		answer, err := locks.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.True(t, answer.Granted)
		return r, answer
	}
	there := func(name string) bool {
		return s.count(t, conn, "select count(*) from %s.locks where name = $1", name) > 0
	}
	advance := func(d time.Duration) {
		s.exec(t, conn, "update %s.locks set expires_at = expires_at - $1::bigint * interval '1 microsecond'", d.Microseconds())
	}

	released, old := take("released", time.Minute)
	_, err := locks.Release(t.Context(), released.Name, released.Claim)
	require.NoError(t, err)
	take("crashed", time.Minute)
	take("held", 30*24*time.Hour)
	advance(24 * time.Hour)
	take("younger", time.Minute)

	advance(6*24*time.Hour - 10*time.Minute)
	take("too soon", time.Minute)
	require.True(t, there("released"))
	advance(20 * time.Minute)
	take("younger", time.Minute) // not a new name
	require.True(t, there("released"))
	take("new", time.Minute)
	require.False(t, there("released"))
	require.False(t, there("crashed"))
	require.True(t, there("held"))
	require.True(t, there("younger"))
	_, again := take("released", time.Minute)
	require.Greater(t, again.Fence, old.Fence, "the fence rises although its row is gone")
}
