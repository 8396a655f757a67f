package chaos_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

func TestThePlaceOfAKilledWorkerIsUsedAgain_PostgreSQL(t *testing.T) {
	t.Parallel()
	placeUsedAgain(t, pgtest.Database(t))
}

func TestThePlaceOfAKilledWorkerIsUsedAgain_SQLite(t *testing.T) {
	t.Parallel()
	placeUsedAgain(t, sqliteDSN(t))
}

// placeUsedAgain kills the worker that has the only place of a key. Another one starts the
// next run not before the lease may have expired, and within that and the time that a
// reclaim may take to find it.
func placeUsedAgain(t *testing.T, dsn string) {
	t.Helper()
	p := newPit(t, openStore(t, dsn))
	p.dsn = dsn
	p.start()
	require.Eventually(t, func() bool {
		_, err := p.db.Gate(t.Context(), "doc", "a")
		return err == nil
	}, time.Minute, 20*time.Millisecond, "the limits are declared")
	enqueue := func(lasts time.Duration) durable.NewRun {
		run := bounded.New(boundedArgs{For: store.Duration(lasts)}, durable.LimitedBy(docLimit, "a"))
		_, err := durable.NewClient(p.db).Enqueue(t.Context(), run)
		require.NoError(t, err)
		return run
	}
	enqueue(time.Hour)
	require.Eventually(t, func() bool { return len(p.stays()) == 1 }, time.Minute, 10*time.Millisecond, "it executes")
	p.start()
	require.Eventually(t, func() bool {
		alive, err := p.db.Workers(t.Context())
		return err == nil && len(alive) == 2
	}, time.Minute, 10*time.Millisecond, "the other one has started")
	next := enqueue(time.Millisecond)
	killed := ledgerNow()
	p.halt(p.workers[0], syscall.SIGKILL)
	var began time.Time
	require.Eventually(t, func() bool {
		for _, s := range p.stays() {
			if s.run == next.ID {
				began = s.from
			}
		}
		return !began.IsZero()
	}, time.Minute, 10*time.Millisecond, "the next one executes")
	took := began.Sub(killed)
	t.Logf("used again after %v, of a lease of %v", took, leaseDuration)
	require.LessOrEqual(t, took, leaseDuration+reclaimWithin)
}

// reclaimWithin is how long after its end a lease is found expired, and the place that it
// had is given on.
const reclaimWithin = leaseDuration / 2
