package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
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
	known := store.Limit{ID: store.LimitID(l.count("select id from limits where name = $1", limit))} //nolint:gosec // few limits
	require.NoError(l.t, l.conn().QueryRow(l.t.Context(), "select secret from limits where name = $1", limit).Scan(&known.Secret))
	return int64(admit.GateOf(&known, key))
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

// TestAnAdmissionIsAlone has two admissions of one key, the second while the first has
// decided and is not committed. A run of a higher priority is enqueued in between, so that
// the two would not meet at the same waiter.
func TestAnAdmissionIsAlone(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	before, runs := l.admit(1)
	l.settle(before, runs, store.Outcome{Kind: store.Success})
	l.admit(1)
	ids := l.enqueue(limitedRun(use("doc", "a")))
	l.stall("insert on permits deferrable initially deferred")
	r := l.admission(1)
	committed := l.claiming(&r)
	urgent := newRun(durable.Priority(2))
	urgent.Limits = []store.LimitUse{use("doc", "a")}
	l.enqueue(urgent)
	_, second := l.admit(5)
	first := committed()
	require.Equal(t, ids, idsOf(first))
	require.Empty(t, second, "the first has the gate")
	require.Equal(t, 1, l.count("select sum(k) from permits"))
	l.settle(r, first, store.Outcome{Kind: store.Success})
	require.Eventually(t, func() bool {
		_, runs = l.admit(5)
		return len(runs) == 1 && runs[0].ID == urgent.ID
	}, 10*time.Second, time.Millisecond)
}

// TestAZombieFreesNoPlaceOfOthers has a worker settle a claim of which a reclaim has taken
// back one run, whose place is another's now, and left one that a user's transaction held.
func TestAZombieFreesNoPlaceOfOthers(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	zombie, runs := l.admit(5)
	require.Equal(t, ids, idsOf(runs))
	l.shift(t, 2*time.Minute)
	user := l.begin("select from runs where id = $1 for update", ids[1])
	result, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
	require.NoError(t, err)
	require.Len(t, result.Runs, 1)
	require.Equal(t, ids[0], result.Runs[0].ID)
	owner, again := l.admit(5)
	require.Equal(t, ids[:1], idsOf(again))
	require.NoError(t, user.Rollback(t.Context()))
	require.Equal(t, store.Rejected, l.settle(zombie, runs, store.Outcome{Kind: store.Success})[0])
	require.Equal(t, 1, l.count("select sum(k) from permits where owner = $1", uuid.UUID(owner.Claim)))
	require.Equal(t, 1, l.count("select sum(k) from permits"), "its own is free")
	require.Equal(t, []store.Verdict{store.Applied}, l.settle(owner, again, store.Outcome{Kind: store.Success}))
	l.sound("at the end")
}

// TestAKeptPlaceLapses has an admission keep a place for the lane of another worker, which
// does not come: it is passed over for a while, and keeps its place again afterwards.
func TestAKeptPlaceLapses(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	urgent := newRun(durable.Priority(2))
	urgent.Limits = []store.LimitUse{use("doc", "a")}
	l.enqueue(urgent)
	next := func() []store.RunID { return l.enqueue(limitedRun(use("doc", "a"))) }
	ids := next()
	other := store.LaneID(l.count("select lane from waiting where run_id = $1", urgent.ID)) //nolint:gosec // few lanes
	admitOthers := func() (store.ClaimRequest, []store.ClaimedRun) {                        // by a worker that does not serve it
		r := l.admission(5)
		r.Lanes = slices.DeleteFunc(r.Lanes, func(lane store.LaneID) bool { return lane == other })
		r.Admissions = slices.DeleteFunc(r.Admissions, func(a store.Admission) bool { return a.Line == other })
		runs, err := l.Claim(t.Context(), r)
		require.NoError(t, err)
		return r, runs
	}
	pass := func(why string) {
		r, runs := admitOthers()
		require.Equal(t, ids, idsOf(runs), why)
		l.settle(r, runs, store.Outcome{Kind: store.Success})
		ids = next()
	}
	_, none := admitOthers()
	require.Empty(t, none, "the place is kept")
	l.shift(t, admit.KeepFor)
	pass("its worker has not come")
	l.shift(t, admit.SkipFor-time.Second)
	pass("its lane is passed over")
	l.shift(t, time.Second)
	_, none = admitOthers()
	require.Empty(t, none, "the place is kept again")
	_, runs := l.admit(1)
	require.Equal(t, []store.RunID{urgent.ID}, idsOf(runs), "its worker has come")
	require.Zero(t, l.count("select count(*) from kept"))
	l.sound("at the end")
}
