package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// follow stores leases without runs and renews them together, which takes as
// many as this.
func follow(t *testing.T, store opened) []lease.ClaimID {
	t.Helper()
	claims, conn := make([]lease.ClaimID, 100), connect(t, store.url)
	for i := range claims {
		claims[i] = store.lease(t, conn, 30*time.Second)
	}
	renewed, err := store.Renew(t.Context(), claims, 30*time.Second)
	require.NoError(t, err)
	require.ElementsMatch(t, claims, renewed)
	return claims
}

// lease stores a lease without runs.
func (o opened) lease(t *testing.T, conn *pgx.Conn, d time.Duration) lease.ClaimID {
	t.Helper()
	id := lease.NewClaimID()
	o.exec(t, conn, `insert into %s.leases (claim_id, acquired_at, expires_at, duration, worker, alone, run_ids)
		values ($1, now(), now() + $2::bigint * interval '1 microsecond', $2, 1, false, '{}')`, uuid.UUID(id), d.Microseconds())
	return id
}

func reclaimOnce(t *testing.T, db opened) store.ReclaimResult {
	t.Helper()
	done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 1000})
	require.NoError(t, err)
	return done
}

func TestBeats(t *testing.T) {
	t.Parallel()
	t.Run("many leases are renewed by one row", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		claims := follow(t, store)
		require.Equal(t, len(claims), store.count(t, connect(t, store.url), "select count(*) from %s.leases l join %s.beats b on b.id = l.beat where l.expires_at is null"))
		before := store.count(t, connect(t, store.url), "select max(xmin::text::bigint) from %s.leases")
		_, err := store.Renew(t.Context(), claims, 30*time.Second)
		require.NoError(t, err)
		require.Equal(t, before, store.count(t, connect(t, store.url), "select max(xmin::text::bigint) from %s.leases"))
	})
	t.Run("claims that end before their second renewal do not make ever more rows", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		conn := connect(t, store.url)
		for range 10 {
			claims := make([]lease.ClaimID, 100)
			for i := range claims {
				claims[i] = store.lease(t, conn, 40*time.Millisecond)
			}
			began := time.Now()
			renewed, err := store.Renew(t.Context(), claims, 40*time.Millisecond)
			require.NoError(t, err)
			require.ElementsMatch(t, claims, renewed)
			store.exec(t, conn, "delete from %s.leases where claim_id = any ($1)", claims[1:]) // one is left behind
			require.Eventually(t, func() bool { return time.Since(began) > 60*time.Millisecond }, time.Minute, time.Millisecond)
		}
		require.LessOrEqual(t, store.count(t, conn, "select count(*) from %s.beats"), 2)
		require.Equal(t, 10, reclaimOnce(t, store).Leases)
	})
	t.Run("leases that came to follow a beat unknown to their process expire when they do", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		conn := connect(t, store.url)
		cutOff, c := openCut(t, store)
		const d = 200 * time.Millisecond
		var before, left, after []lease.ClaimID
		for range 100 {
			before, after = append(before, store.lease(t, conn, time.Minute)), append(after, store.lease(t, conn, time.Minute))
			left = append(left, store.lease(t, conn, d))
		}
		_, err := cutOff.Renew(t.Context(), before, time.Minute) // there is a connection
		require.NoError(t, err)
		c.next.Store(0)
		began := time.Now()
		_, err = cutOff.Renew(t.Context(), left, d)
		require.Error(t, err)
		require.Eventually(t, func() bool { return time.Since(began) > 2*d }, time.Minute, time.Millisecond)
		renewed, err := cutOff.Renew(t.Context(), after, time.Minute)
		require.NoError(t, err)
		require.ElementsMatch(t, after, renewed)
		require.Equal(t, len(left), reclaimOnce(t, store).Leases)
	})
	t.Run("a lease that was deleted by hand is lost at the next beat", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		claims := follow(t, store)
		store.exec(t, connect(t, store.url), "delete from %s.leases where claim_id = $1", uuid.UUID(claims[7]))
		renewed, err := store.Renew(t.Context(), claims, 30*time.Second)
		require.NoError(t, err)
		require.Len(t, renewed, len(claims)-1)
		require.NotContains(t, renewed, claims[7])
	})
	t.Run("a beat of before the clock was set back gets one duration", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		follow(t, store)
		store.exec(t, connect(t, store.url), "update %s.beats set expires_at = now() + interval '1 day'")
		reclaimOnce(t, store)
		require.Equal(t, 1, store.count(t, connect(t, store.url), "select count(*) from %s.beats where expires_at < now() + interval '31 s'"))
	})
	t.Run("leases whose beat was deleted by hand expire by themselves", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		claims := follow(t, store)
		store.exec(t, connect(t, store.url), "delete from %s.beats")
		reclaimOnce(t, store)
		require.Equal(t, len(claims), store.count(t, connect(t, store.url), "select count(*) from %s.leases where beat is null and expires_at < now() + interval '31 s'"))
		store.shift(t, 31*time.Second)
		require.Equal(t, len(claims), reclaimOnce(t, store).Leases)
	})
	t.Run("a beat that nothing has followed for an hour is deleted", func(t *testing.T) {
		t.Parallel()
		store := openStore(t, "")
		follow(t, store)
		store.exec(t, connect(t, store.url), "insert into %s.beats values ($1, now() - interval '2 hours', now(), 1)", uuid.New())
		reclaimOnce(t, store)
		require.Equal(t, 1, store.count(t, connect(t, store.url), "select count(*) from %s.beats"))
	})
}

// A renewal that waits while its leases are taken over does not answer that it
// renewed them, whatever the server's default isolation is.
func TestBeatWaitsForTheReclaim(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read%20committed", "repeatable%20read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			store := openStore(t, "&default_transaction_isolation="+isolation)
			claims := follow(t, store)
			store.shift(t, 31*time.Second)
			conn := connect(t, store.url)
			tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), asSent(t, queries.EndBeats, store.schema+"."), []uuid.UUID{}, nil, 1000, nil)
			require.NoError(t, err)
			store.exec(t, tx.Conn(), "delete from %s.leases where expires_at <= now()") // as ReclaimRuns does
			answer := make(chan []lease.ClaimID, 1)
			go func() {
				renewed, err := store.Renew(context.WithoutCancel(t.Context()), claims, 30*time.Second)
				if err != nil {
					t.Error(err)
				}
				answer <- renewed
			}()
			watch := connect(t, store.url)
			require.Eventually(t, func() bool {
				var waits bool
				err := watch.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%')", store.schema).Scan(&waits)
				return err == nil && waits
			}, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, tx.Commit(t.Context()))
			require.Empty(t, <-answer)
		})
	}
}
