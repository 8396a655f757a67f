package sqlite_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// shiftedLocks are locks whose clock jumps ahead when the test says so.
type shiftedLocks struct {
	lock.Locks
	ahead *atomic.Int64
}

func TestLocks(t *testing.T) {
	t.Parallel()
	locktest.TestLocks(t, locktest.Backend{
		New: func(t *testing.T) lock.Locks {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			s := open(t, newPath(t), sqlite.Config{Clock: clock})
			migrate(t, s)
			return shiftedLocks{s.Locks(), ahead}
		},
		Advance: func(_ *testing.T, locks lock.Locks, d time.Duration) { locks.(shiftedLocks).ahead.Add(int64(d)) },
	})
}

func BenchmarkLocks(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	defer s.Close()
	_, err = s.Migrate(b.Context())
	require.NoError(b, err)
	locktest.BenchmarkLocks(b, s.Locks())
}
