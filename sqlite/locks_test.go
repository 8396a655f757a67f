package sqlite_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lease/leasetest"
	"github.com/durable-worker/durable-worker/sqlite"
)

// shiftedLocks are locks whose clock jumps ahead when it is told to.
type shiftedLocks struct {
	lease.Locks
	ahead *atomic.Int64
}

func TestLocks(t *testing.T) {
	t.Parallel()
	leasetest.TestLocks(t, leasetest.Backend{
		New: func(t *testing.T) lease.Locks {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			s := open(t, newPath(t), sqlite.Config{Clock: clock})
			migrate(t, s)
			return shiftedLocks{s.Locks(), ahead}
		},
		Advance: func(_ *testing.T, locks lease.Locks, d time.Duration) { locks.(shiftedLocks).ahead.Add(int64(d)) },
	})
}

func BenchmarkLocks(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	defer s.Close()
	_, err = s.Migrate(b.Context())
	require.NoError(b, err)
	leasetest.BenchmarkLocks(b, s.Locks())
}
