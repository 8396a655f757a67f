package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// More interleavings, in which a transaction that is open keeps what it has freed, or taken,
// from the snapshot of an admission.

// during does something that has to wait for an open transaction, and returns what ends it
// once it waits.
func (l *limited) during(tx pgx.Tx, do func(ctx context.Context) error) (ended func()) {
	l.t.Helper()
	ended, _ = l.behind(l.backend(tx), do)
	return ended
}

func (l *limited) backend(tx pgx.Tx) (pid int) {
	l.t.Helper()
	require.NoError(l.t, tx.QueryRow(l.t.Context(), "select pg_backend_pid()").Scan(&pid))
	return pid
}

// behind is during for what another backend has open, and returns the backend that waits.
func (l *limited) behind(other int, do func(ctx context.Context) error) (ended func(), pid int) {
	l.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do(l.t.Context()) }()
	conn := l.conn()
	require.Eventually(l.t, func() bool {
		return conn.QueryRow(l.t.Context(), "select pid from pg_stat_activity where $1 = any (pg_blocking_pids(pid))", other).Scan(&pid) == nil
	}, 10*time.Second, time.Millisecond, "it waits for the transaction")
	return func() {
		l.t.Helper()
		require.NoError(l.t, <-done)
	}, pid
}

// stall has the first transaction that a trigger names wait for who has the advisory lock of
// the schema, however long: at its commit, where the trigger is deferred, else at the end
// of the statement.
func (l *limited) stall(trigger string) {
	l.t.Helper()
	for _, statement := range []string{
		"create sequence stalls",
		fmt.Sprintf(`create function stall() returns trigger language plpgsql set lock_timeout = 0 as $$ begin
			if nextval('%[1]s.stalls') = 1 then perform pg_advisory_xact_lock(hashtext('%[1]s')); end if; return null; end $$`, l.schema),
		"create constraint trigger stall after " + trigger + " for each row execute function stall()",
	} {
		_, err := l.conn().Exec(l.t.Context(), statement)
		require.NoError(l.t, err)
	}
}

// stalled begins what stalls, and returns what lets it go on and waits for its end.
func (l *limited) stalled(do func(ctx context.Context) error) (goOn func()) {
	l.t.Helper()
	holder := l.begin("select pg_advisory_xact_lock(hashtext($1))", l.schema)
	ended := l.during(holder, do)
	return func() {
		l.t.Helper()
		require.NoError(l.t, holder.Rollback(l.t.Context()))
		ended()
	}
}

// claiming begins an admission that stalls.
func (l *limited) claiming(r *store.ClaimRequest) (goOn func() []store.ClaimedRun) {
	l.t.Helper()
	var runs []store.ClaimedRun
	end := l.stalled(func(ctx context.Context) (err error) {
		runs, err = l.Claim(ctx, *r)
		return err
	})
	return func() []store.ClaimedRun {
		l.t.Helper()
		end()
		return runs
	}
}

// sound expects that nothing is as it must not be.
func (l *limited) sound(why string) {
	l.t.Helper()
	faults, err := l.CheckLimits(l.t.Context())
	require.NoError(l.t, err)
	require.Empty(l.t, faults, why)
}

// TestATurnIsNotLost has a run be enqueued, and an admission look, while the settlement that
// frees the place is open and has seen no waiter. The admission counts the permit and drops
// the run's turn; the settlement's own, which it inserts whether or not it sees a waiter,
// is what is left.
func TestATurnIsNotLost(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	first, runs := l.admit(1)
	require.Len(t, runs, 1)
	l.stall("delete on permits deferrable initially deferred")
	settled := l.stalled(func(ctx context.Context) error {
		s := settlement(first, runs, store.Outcome{Kind: store.Success})
		s.Limited, s.Claimed = true, len(runs)
		_, err := l.Settle(ctx, []store.Settlement{s})
		return err
	})
	ids := l.enqueue(limitedRun(use("doc", "a")))
	_, none := l.admit(1)
	require.Empty(t, none, "the permit counts until the settlement is committed")
	require.Zero(t, l.count("select count(*) from turns"), "the run's turn was taken")
	settled()
	_, runs = l.admit(1)
	require.Equal(t, ids, idsOf(runs))
}

// TestTheTurnOfAReclaimIsNotLost is the same for a reclaim: of a run that its handler has
// completed in a transaction of its own, so that nothing is put back in line with a turn.
func TestTheTurnOfAReclaimIsNotLost(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	first, runs := l.admit(1)
	require.Len(t, runs, 1)
	tx, err := connect(t, plainURL(t, l.opened)).Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.WithTx(tx).Complete(t.Context(), store.Holder{Run: runs[0].ID, Claim: first.Claim}, store.Completion{}))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, l.count("select sum(k) from permits"), "the settlement that follows would free it")
	l.shift(t, 2*time.Minute)
	l.stall("delete on permits deferrable initially deferred")
	reclaimed := l.stalled(func(ctx context.Context) error {
		_, err := l.Reclaim(ctx, store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
		return err
	})
	ids := l.enqueue(limitedRun(use("doc", "a")))
	_, none := l.admit(1)
	require.Empty(t, none, "the permit counts until the reclaim is committed")
	require.Zero(t, l.count("select count(*) from turns"), "the run's turn was taken")
	reclaimed()
	_, runs = l.admit(1)
	require.Equal(t, ids, idsOf(runs))
	l.sound("at the end")
}

// TestAnEnqueueBesideAnAdmissionIsAnnounced has a run be enqueued while an admission of its
// key is open: after it took turns, one for all that were due, and after it read who waits.
func TestAnEnqueueBesideAnAdmissionIsAnnounced(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{"turns are taken": "delete on turns", "lines are read": "delete on waiting"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLimited(t, semaphore("doc", 2))
			ids := l.enqueue(limitedRun(use("doc", "a")))
			l.stall(trigger)
			r := l.admission(5)
			committed := l.claiming(&r)
			late := l.enqueue(limitedRun(use("doc", "a")))
			require.Equal(t, ids, idsOf(committed()))
			require.NotZero(t, l.count("select count(*) from turns where line < 1 << 30"), "its turn is there")
			_, runs := l.admit(5)
			require.Equal(t, late, idsOf(runs))
		})
	}
}

// TestATurnAnswersForNoOthers: the turns that go with one that is taken are those of gates
// that the admission has, of the line that it read, and only once it is committed.
func TestATurnAnswersForNoOthers(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("web", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	_, held := l.admit(1)
	require.Len(t, held, 1)
	urgent := newRun(durable.Priority(2))
	urgent.Limits = []store.LimitUse{use("doc", "a")}
	both := limitedRun(use("doc", "a"), use("web", "b"))
	both.Limits[1].WhenFull, both.Limits[1].RetryAfter = store.FullRetry, time.Hour // so it waits in the line of the first
	for _, run := range []store.NewRun{urgent, both, limitedRun(use("doc", "a")), limitedRun(use("doc", "a"))} {
		l.enqueue(run)
	}
	const turns = "select count(*) from turns"
	require.Equal(t, 4, l.count(turns))
	r := l.admission(1)
	r.Admissions = r.Admissions[len(r.Admissions)-1:] // of the lower priority
	claim := func() {
		runs, err := l.Claim(t.Context(), r)
		require.NoError(t, err)
		require.Empty(t, runs)
	}
	busy := l.begin("select from gates for update")
	claim()
	require.Equal(t, 4, l.count(turns), "the gate is another admission's")
	require.NoError(t, busy.Rollback(t.Context()))
	making := l.begin("insert into gates (gate) values ($1)", l.gate("web", "b"))
	claim()
	require.Equal(t, 4, l.count(turns), "it is rolled back")
	require.NoError(t, making.Rollback(t.Context()))
	require.Eventually(t, func() bool { claim(); return l.count(turns) == 1 }, 10*time.Second, 2*time.Millisecond)
	require.Equal(t, 1, l.count("select count(*) from turns where line = (select lane from waiting where run_id = $1)", urgent.ID))
}

// TestACandidateIsCancelledMeanwhile: an admission passes over a waiter that a transaction
// has taken out of its line, and counts nothing for it, whether that commits or not.
func TestACandidateIsCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")), limitedRun(use("doc", "b")))
	tx := l.begin("delete from waiting where run_id = $1", ids[0])
	_, err := tx.Exec(t.Context(), "update runs set state = 5, finished_at = now() where id = $1", ids[0])
	require.NoError(t, err)
	_, runs := l.admit(5)
	require.Equal(t, ids[2:], idsOf(runs), "of the other key")
	require.NoError(t, tx.Commit(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(5)
		return len(runs) == 1 && runs[0].ID == ids[1]
	}, 10*time.Second, time.Millisecond, "the next of its key")
	l.sound("at the end")
}

// TestACandidateIsCancelledAfterItWasRead: an admission that has read a waiter which is then
// cancelled takes no place for it.
func TestACandidateIsCancelledAfterItWasRead(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("web", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	first, runs := l.admit(1)
	l.settle(first, runs, store.Outcome{Kind: store.Success})
	l.admit(1)
	ids := l.enqueue(limitedRun(use("doc", "a"), use("web", "b")))
	l.stall("insert on gates") // of its other limit, which is made when its line has been read
	r := l.admission(5)
	committed := l.claiming(&r)
	_, err := l.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: ids, By: "ann"})
	require.NoError(t, err)
	require.Empty(t, committed())
	require.Zero(t, l.count("select count(*) from permits"))
	require.Zero(t, l.count("select count(*) from leases"))
	l.sound("at the end")
}

// TestAMovedRunIsCancelledMeanwhile is the same for a run whose line waits in the round of
// the second of its limits.
func TestAMovedRunIsCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("api", 1))
	l.enqueue(limitedRun(use("api", "")))
	first, runs := l.admit(1)
	require.Len(t, runs, 1)
	ids := l.enqueue(limitedRun(use("doc", "a"), use("api", "")), limitedRun(use("doc", "a"), use("api", "")))
	_, none := l.admit(5)
	require.Empty(t, none)
	require.NotZero(t, l.count("select count(*) from rounds where gate = $1", l.gate("api", "")), "their line waits there")
	moved := ids[0]
	tx := l.begin("select from waiting where run_id = $1 for update", moved)
	l.settle(first, runs, store.Outcome{Kind: store.Success})
	_, err := tx.Exec(t.Context(), "update runs set state = 5, finished_at = now() where id = $1", moved)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "delete from waiting where run_id = $1", moved)
	require.NoError(t, err)
	_, runs = l.admit(5)
	require.NotContains(t, idsOf(runs), moved)
	require.NoError(t, tx.Commit(t.Context()))
	require.Eventually(t, func() bool {
		if len(runs) == 0 {
			_, runs = l.admit(5)
		}
		return len(runs) == 1 && runs[0].ID == ids[1]
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, 2, l.count("select sum(k) from permits"), "a place of each")
	l.sound("at the end")
}

// TestAClaimIsReclaimedWhileAPartIsSettled: a reclaim leaves a claim alone that a settlement
// has in hand, and takes what is left of it afterwards.
func TestAClaimIsReclaimedWhileAPartIsSettled(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 3))
	l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	r, runs := l.admit(3)
	require.Len(t, runs, 3)
	l.shift(t, 2*time.Minute)
	settling := l.begin("select from leases order by claim_id for key share") // as HoldLeases
	reclaim := func() int {
		result, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
		require.NoError(t, err)
		return len(result.Runs)
	}
	require.Zero(t, reclaim(), "its claim is in the hand of a settlement")
	require.Equal(t, 3, l.count("select sum(k) from permits"))
	require.NoError(t, settling.Rollback(t.Context()))
	part := settlement(r, runs[:1], store.Outcome{Kind: store.Success})
	part.Limited, part.Claimed, part.Last = true, 3, false
	verdicts, err := l.Settle(t.Context(), []store.Settlement{part})
	require.NoError(t, err)
	require.Equal(t, []store.Verdict{store.Applied}, verdicts)
	require.Equal(t, 2, l.count("select sum(k) from permits"))
	require.Equal(t, 2, reclaim())
	require.Zero(t, l.count("select count(*) from permits"))
	_, runs = l.admit(5)
	require.Len(t, runs, 2)
	l.sound("at the end")
}

// TestAPlaceIsFreedWhileANewLaneIsMade: the first run of a lane that is new to a limit is
// committed after the place was freed; its own turn announces it.
func TestAPlaceIsFreedWhileANewLaneIsMade(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	first, runs := l.admit(1)
	require.Len(t, runs, 1)
	conn := connect(t, plainURL(t, l.opened))
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	late := newRun(durable.Priority(2))
	late.Limits = []store.LimitUse{use("doc", "a")}
	_, err = l.WithTx(tx).Enqueue(t.Context(), late)
	require.NoError(t, err)
	l.settle(first, runs, store.Outcome{Kind: store.Success})
	_, none := l.admit(5)
	require.Empty(t, none, "it is not committed")
	require.NoError(t, tx.Commit(t.Context()))
	_, runs = l.admit(5)
	require.Equal(t, []store.RunID{late.ID}, idsOf(runs))
}

// TestAKeyIsPenalizedBesideAnAdmission: a penalty waits for the admission that has the gate,
// counts for the next one, and leaves a turn for when it ends.
func TestAKeyIsPenalizedBesideAnAdmission(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	ids := l.enqueue(limitedRun(use("doc", "a")), limitedRun(use("doc", "a")))
	_, runs := l.admit(1)
	require.Equal(t, ids[:1], idsOf(runs))
	admitting := l.begin("select from gates for update") // as TakeTurns
	penalized := l.during(admitting, func(ctx context.Context) error {
		_, err := l.UseLimit(ctx, store.LimitRequest{Usage: store.UsagePenalize, Limit: "doc", Key: "a", For: time.Hour})
		return err
	})
	require.NoError(t, admitting.Rollback(t.Context()))
	penalized()
	_, none := l.admit(5)
	require.Empty(t, none)
	require.Equal(t, 1, l.count("select count(*) from turns where gate = $1 and due_at > now() + interval '59 minutes'", l.gate("doc", "a")))
	l.sound("while it lasts")
	l.shift(t, time.Hour)
	_, runs = l.admit(5)
	require.Equal(t, ids[1:], idsOf(runs))
}

// TestAPlaceIsNotTakenWhileItIsRenewed has a permit of a named owner expire while its renewal
// is open, and another owner ask for the place.
func TestAPlaceIsNotTakenWhileItIsRenewed(t *testing.T) {
	t.Parallel()
	const lasts = 2 * time.Second
	l := openLimited(t, semaphore("doc", 1))
	asking := func(usage store.LimitUsage, owner string, d time.Duration, grant *store.LimitGrant) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			*grant, err = l.UseLimit(ctx, store.LimitRequest{Usage: usage, Limit: "doc", Owner: owner, For: d})
			return err
		}
	}
	var held, renewed, taken store.LimitGrant
	require.NoError(t, asking(store.UsageAcquire, "ann", lasts, &held)(t.Context()))
	require.True(t, held.Granted)
	l.stall("update on permits deferrable initially deferred")
	holder := l.begin("select pg_advisory_xact_lock(hashtext($1))", l.schema)
	renewal, renewing := l.behind(l.backend(holder), asking(store.UsageRenew, "ann", time.Minute, &renewed))
	<-time.After(lasts) // as others see it, the permit has expired
	other, _ := l.behind(renewing, asking(store.UsageAcquire, "bob", time.Minute, &taken))
	require.NoError(t, holder.Rollback(t.Context()))
	renewal()
	other()
	require.True(t, renewed.Granted)
	require.False(t, taken.Granted, "two owners of one place")
	require.Equal(t, 1, l.count("select sum(k) from permits"))
	l.sound("at the end")
}
