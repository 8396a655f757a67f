package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// openedLocks are the locks of a store with the store.
type openedLocks struct {
	lock.Locks
	store opened
}

func TestLocks(t *testing.T) {
	t.Parallel()
	testLocks(t, pgtest.Server(t), false)
}

func testLocks(t *testing.T, url string, deaf bool) {
	locktest.TestLocks(t, locktest.Backend{
		Deaf: deaf,
		New: func(t *testing.T) lock.Locks {
			s := openEmpty(t, url)
			return openedLocks{s.Locks(), s}
		},
		Advance: func(t *testing.T, locks lock.Locks, d time.Duration) {
			s := locks.(openedLocks).store
			for _, back := range []string{".locks SET acquired_at = acquired_at - @, expires_at = expires_at - @", ".lock_waits SET since = since - @, until = until - @"} {
				_, err := connect(t, s.url).Exec(t.Context(), "UPDATE "+s.schema+strings.ReplaceAll(back, "@", "$1::bigint * interval '1 microsecond'"), d.Microseconds())
				require.NoError(t, err)
			}
		},
	})
}

func BenchmarkLocks(b *testing.B) {
	s, err := postgres.Open(b.Context(), pgtest.Database(b), postgres.Config{})
	require.NoError(b, err)
	defer s.Close()
	_, err = s.Migrate(b.Context())
	require.NoError(b, err)
	locktest.BenchmarkLocks(b, s.Locks())
}
