package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// lockFor asks for the only slot of a name, for an hour.
func lockFor(name string) lock.Request {
	return lock.Request{Name: name, Slots: 1, Claim: lease.NewClaimID(), Owner: "test", Duration: time.Hour}
}

// acquireLock must be granted a lock.
func acquireLock(t *testing.T, db opened, name string) lock.Request {
	t.Helper()
	r := lockFor(name)
	answer, err := db.Locks().Acquire(t.Context(), r)
	require.NoError(t, err)
	require.True(t, answer.Granted)
	return r
}

// waitsForLock waits until a statement of the store waits for a row.
func waitsForLock(t *testing.T, db opened) {
	t.Helper()
	watch := connect(t, db.url)
	require.Eventually(t, func() bool {
		var waits bool
		err := watch.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%')", db.schema).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 10*time.Millisecond)
}

// holdLock locks the row of a lock, as a transaction of an operator may.
func holdLock(t *testing.T, db opened, name string) pgx.Tx {
	t.Helper()
	tx, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(t.Context(), "select from "+db.schema+".locks where name = $1 for update", name)
	require.NoError(t, err)
	return tx
}

// The connection is cut in every message of an acquisition and of its release. What the
// caller has not received is given back, though the grant would last for an hour.
func TestLocks_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openEmpty(t, pgtest.Server(t))
	cutOff, c := openCut(t, db)
	locker := lock.NewLocker(cutOff.Locks(), lock.LockerConfig{CallTimeout: 20 * time.Second})
	terms := lock.Terms{Terms: lease.Terms{Duration: time.Hour}.WithDefaults()}
	c.sweep(t, func(n int64) {
		if grant, err := locker.TryAcquire(t.Context(), "nightly", terms); err == nil {
			_ = locker.Release(t.Context(), grant)
		}
		require.Eventually(t, func() bool {
			r := lockFor("nightly")
			answer, err := db.Locks().Acquire(t.Context(), r)
			require.NoError(t, err)
			if answer.Granted {
				released, err := db.Locks().Release(t.Context(), r.Name, r.Claim)
				require.NoError(t, err)
				require.True(t, released)
			}
			return answer.Granted
		}, time.Minute, 5*time.Millisecond, "cut at %d", n)
		require.Eventually(t, func() bool { return locker.Degraded() == 0 }, time.Minute, 5*time.Millisecond)
	})
	locker.Close()
}

// A release that overtakes the acquisition of its claim waits for it, and frees what that is
// granted.
func TestLocks_ReleaseWaitsForTheAcquisitionUnderWay(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"commits": pgx.Tx.Commit, "fails": pgx.Tx.Rollback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openEmpty(t, pgtest.Server(t))
			first := acquireLock(t, db, "nightly")
			_, err := db.Locks().Release(t.Context(), first.Name, first.Claim)
			require.NoError(t, err)
			r := lockFor("nightly")
			tx, err := connect(t, db.url).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "update "+db.schema+".locks set claim_id = $1, expires_at = now() + interval '1 hour' where name = 'nightly'", uuid.UUID(r.Claim).String())
			require.NoError(t, err)
			freed := make(chan bool, 1)
			go func() {
				released, err := db.Locks().Release(context.WithoutCancel(t.Context()), r.Name, r.Claim)
				if err != nil {
					t.Error(err)
				}
				freed <- released
			}()
			waitsForLock(t, db)
			require.NoError(t, end(tx, t.Context()))
			require.Equal(t, name == "commits", <-freed)
			if name == "fails" {
				_, err = db.Locks().Acquire(t.Context(), r)
				require.ErrorIs(t, err, lock.ErrRefused)
			}
			acquireLock(t, db, "nightly")
		})
	}
}

// Rows that refuse claims go when their time is over.
func TestLocks_RefusedClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	db := openEmpty(t, pgtest.Server(t))
	conn := connect(t, db.url)
	refuse := func() {
		released, err := db.Locks().Release(t.Context(), "nightly", lease.NewClaimID())
		require.NoError(t, err)
		require.False(t, released)
	}
	for range 5 {
		refuse()
	}
	require.Equal(t, 5, db.count(t, conn, "select count(*) from %s.locks"))
	db.exec(t, conn, "update %s.locks set expires_at = expires_at - interval '61 minutes'")
	refuse()
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.locks"))
}

// A transaction that keeps the row of one lock stops the renewal of that one alone.
func TestLocks_OneRowIsLocked(t *testing.T) {
	t.Parallel()
	db := openEmpty(t, pgtest.Server(t))
	locker := lock.NewLocker(db.Locks(), lock.LockerConfig{CallTimeout: 2 * time.Second})
	defer locker.Close()
	terms := lock.Terms{Terms: lease.Terms{Duration: time.Minute}.WithDefaults()}
	grants := map[string]lock.Grant{}
	for _, name := range []string{"kept", "free", "gone"} {
		grant, err := locker.TryAcquire(t.Context(), name, terms)
		require.NoError(t, err)
		grants[name] = grant
	}
	_, err := db.Locks().ForceRelease(t.Context(), lock.Force{Name: "gone", By: "ada"})
	require.NoError(t, err)
	tx := holdLock(t, db, "kept")
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second) // of which the first try waits a half at most
	defer stop()
	claims := []lease.ClaimID{grants["kept"].Claim, grants["free"].Claim, grants["gone"].Claim}
	renewed, err := db.Locks().Renew(ctx, claims, time.Minute)
	var unknown *lease.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []lease.ClaimID{grants["kept"].Claim}, unknown.Claims)
	require.Equal(t, []lease.ClaimID{grants["free"].Claim}, renewed)

	require.ErrorIs(t, locker.Release(t.Context(), grants["kept"]), lock.ErrRefused)
	require.Zero(t, locker.Degraded(), "it is no outage")
	require.NoError(t, locker.Release(t.Context(), grants["free"]))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		answer, err := db.Locks().Acquire(t.Context(), lockFor("kept"))
		return err == nil && answer.Granted
	}, time.Minute, 10*time.Millisecond, "it is given back as soon as that transaction has ended")
}
