package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// Interleavings that random load never shows, each with a transaction that another session
// has open.

// begin opens a transaction of another session, which does what the statement says.
func (l *limited) begin(statement string, args ...any) pgx.Tx {
	l.t.Helper()
	tx, err := l.conn().Begin(l.t.Context())
	require.NoError(l.t, err)
	_, err = tx.Exec(l.t.Context(), statement, args...)
	require.NoError(l.t, err)
	return tx
}

// gate is the number of a key's gate.
func (l *limited) gate(limit, key string) int64 {
	l.t.Helper()
	return int64(admit.GateOf(store.LimitID(l.count("select id from limits where name = $1", limit)), key)) //nolint:gosec // few limits
}

// TestTurnOfABusyGateIsPutBack has an admission find a gate that another one has locked,
// and has counted: the turn that it took may be that of a release which came after.
func TestTurnOfABusyGateIsPutBack(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	first, runs := l.admit(1)
	require.Equal(t, ids[:1], idsOf(runs))
	other := l.begin("select from gates for update")
	l.settle(first, runs, store.Outcome{Kind: store.Success})
	_, runs = l.admit(1)
	require.Empty(t, runs, "the gate is busy")
	require.NotZero(t, l.count("select count(*) from turns where gate = $1", l.gate("doc", "a")), "the turn is there again")
	require.NoError(t, other.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(1)
		return len(runs) == 1
	}, 10*time.Second, time.Millisecond)
}

// TestAWaiterLockedByAnotherStaysInLine has a user's transaction hold a run that is to be
// admitted: the others are, and it follows.
func TestAWaiterLockedByAnotherStaysInLine(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "b")))
	tx := l.begin("select from runs where id = $1 for update", ids[0])
	_, runs := l.admit(5)
	require.Equal(t, ids[1:], idsOf(runs))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(5)
		return len(runs) == 1 && runs[0].ID == ids[0]
	}, 10*time.Second, time.Millisecond)
}

// TestAGateThatAnotherMakesIsNotWaitedFor has another session make the gates of a run, and
// wait: the admission gives up without an error, and leaves the turns.
func TestAGateThatAnotherMakesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("api", 1))
	ids := l.enqueue(limitedRun(use("doc", "a"), use("api", "b")))
	tx := l.begin("insert into gates (gate) values ($1), ($2)", l.gate("doc", "a"), l.gate("api", "b"))
	_, runs := l.admit(1)
	require.Empty(t, runs)
	require.NotZero(t, l.count("select count(*) from turns"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(1)
		return len(runs) == 1 && runs[0].ID == ids[0]
	}, 10*time.Second, time.Millisecond)
}

// TestALimitIsLoweredWhileItsRunsAreAdmitted: what a change has not committed does not
// count, and what it has does for the next admission.
func TestALimitIsLoweredWhileItsRunsAreAdmitted(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	tx := l.begin("update limits set most = 1 where name = 'doc'")
	first, runs := l.admit(5)
	require.Equal(t, ids[:2], idsOf(runs))
	require.NoError(t, tx.Commit(t.Context()))
	l.settle(first, runs[:1], store.Outcome{Kind: store.Success})
	_, none := l.admit(5)
	require.Empty(t, none, "one is held, and there is one")
	l.settle(first, runs[1:], store.Outcome{Kind: store.Success})
	_, runs = l.admit(5)
	require.Equal(t, ids[2:], idsOf(runs))
}
