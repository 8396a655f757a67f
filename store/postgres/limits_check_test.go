package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// faults are what CheckLimits finds, sorted.
func (l *limited) faults() (kinds []store.LimitFaultKind) {
	l.t.Helper()
	found, err := l.CheckLimits(l.t.Context())
	require.NoError(l.t, err)
	for _, one := range found {
		kinds = append(kinds, one.Fault)
	}
	return kinds
}

func (l *limited) exec(statement string) {
	l.t.Helper()
	_, err := l.conn().Exec(l.t.Context(), statement)
	require.NoError(l.t, err)
}

func (l *limited) sweep() store.SweepResult {
	l.t.Helper()
	l.exec("update sweep set began_at = began_at - interval '2 hours'")
	swept, err := l.Sweep(l.t.Context(), store.SweepRequest{By: uuid.New(), Limit: 100})
	require.NoError(l.t, err)
	return swept
}

// TestLimitFaultsAreFoundAndRepaired breaks rows by hand.
func TestLimitFaultsAreFoundAndRepaired(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("tenant", 1))
	for range 3 {
		l.enqueue(limitedRun(use("tenant", "acme")))
	}
	_, runs := l.admit(1)
	require.Len(t, runs, 1)
	require.Empty(t, l.faults())

	l.exec("delete from leases")
	require.Equal(t, []store.LimitFaultKind{store.PermitOrphaned}, l.faults())
	l.exec("update runs set state = 5 where state = 1") // else the run that is under it counts
	l.exec("update permits set at = at - interval '2 minutes'")
	require.Equal(t, 1, l.sweep().Repaired)
	require.Empty(t, l.faults())

	_, runs = l.admit(1)
	require.Len(t, runs, 1, "the place is free")
	l.exec("update limits set most = 0")
	require.Equal(t, []store.LimitFaultKind{store.LimitExceeded}, l.faults())
	l.exec("update limits set most = 2")
	l.exec("delete from turns")
	found, err := l.CheckLimits(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, store.KeyStuck, found[0].Fault)
	require.Equal(t, "tenant", found[0].Limit)
	require.Equal(t, "acme", found[0].Key)
	require.Equal(t, 1, l.sweep().Repaired)
	require.Empty(t, l.faults())
	_, runs = l.admit(1)
	require.Len(t, runs, 1, "and the workers asked")

	l.enqueue(limitedRun(use("tenant", "other")))
	l.exec("update waiting set due_at = due_at + interval '1 second'")
	require.Contains(t, l.faults(), store.RunMisplaced)
}

func TestIdleGatesAreForgotten(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("tenant", 1), store.Limit{Name: "rate", Kind: store.LimitTokenBucket, Max: 1, Period: time.Hour, Burst: 1})
	l.enqueue(limitedRun(use("tenant", "acme")), limitedRun(use("rate", "acme")))
	claim, runs := l.admit(10)
	require.Len(t, runs, 2)
	l.sweep()
	require.Equal(t, 2, l.count("select count(*) from gates"), "one is held, one is remembered")
	l.settle(claim, runs, store.Outcome{Kind: store.Success})
	l.admit(10) // takes the turns of the release
	l.sweep()
	require.Equal(t, 1, l.count("select count(*) from gates"), "the rate is remembered")
	l.shift(t, 3*time.Hour)
	l.sweep()
	require.Zero(t, l.count("select count(*) from gates"))
}
