package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

const uncommitted = "completed in a transaction that was not committed"

var order = durable.NewJob[int]("order", durable.Retry(durable.Fixed(20*time.Millisecond)), durable.MaxAttempts(4))

// shop is a user of a store, with a table and a pool of its own.
type shop struct {
	t     *testing.T
	store opened
	pool  *pgxpool.Pool
	tries atomic.Int32
}

func openShop(t *testing.T, store opened) *shop {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), plainURL(t, store))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &shop{t: t, store: store, pool: pool}
	_, err = pool.Exec(t.Context(), fmt.Sprintf("create table %s.effects (run uuid, fence bigint)", store.schema))
	require.NoError(t, err)
	return s
}

// work runs a worker; stop ends it.
func (s *shop) work(config durable.WorkerConfig, handle func(context.Context, *durable.Run[int]) error) (stop func()) {
	s.t.Helper()
	config.PollInterval = 50 * time.Millisecond
	w := durable.NewWorker(s.store, config)
	durable.Register(w, order, handle)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() { cancel(); require.NoError(s.t, <-ended) }
}

// effect writes into the shop's table and completes the run, all in a
// transaction that is still to be ended.
func (s *shop) effect(ctx context.Context, run *durable.Run[int], tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("insert into %s.effects values ($1, $2)", s.store.schema), run.ID, run.Fence); err != nil {
		return err
	}
	if err := run.SetResult(run.Attempt); err != nil {
		return err
	}
	return run.CompleteIn(ctx, s.store.WithTx(tx))
}

// begin begins a transaction that outlives the handler's context.
func (s *shop) begin(ctx context.Context) (pgx.Tx, error) {
	return s.pool.Begin(context.WithoutCancel(ctx))
}

func (s *shop) enqueue() store.RunID {
	s.t.Helper()
	receipt, err := order.Enqueue(s.t.Context(), s.store, 1)
	require.NoError(s.t, err)
	return receipt.ID
}

// ended waits for the end of a run.
func (s *shop) ended(id store.RunID) (record store.Record) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var err error
		record, err = s.store.Run(s.t.Context(), id)
		return err == nil && record.State.Terminal()
	}, 3*time.Minute, 10*time.Millisecond)
	return record
}

func (s *shop) effects(id store.RunID) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), fmt.Sprintf("select count(*) from %s.effects where run = $1", s.store.schema), id).Scan(&n))
	return n
}

func TestCompleteIn(t *testing.T) {
	t.Parallel()
	boom := errors.New("the handler fails")
	commit := func(tx pgx.Tx) error { return tx.Commit(context.Background()) }
	rollback := func(tx pgx.Tx) error { return tx.Rollback(context.Background()) }
	later := func(end func(pgx.Tx) error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			time.AfterFunc(700*time.Millisecond, func() { _ = end(tx) })
			return nil
		}
	}
	for sentence, story := range map[string]struct {
		first    func(pgx.Tx) error // how the first attempt ends its transaction; the others commit
		attempts int
		failure  string // of the first attempt
	}{
		"committed":                               {commit, 1, ""},
		"rolled back":                             {rollback, 2, uncommitted},
		"commit forgotten, and it comes later":    {later(commit), 1, ""},
		"commit forgotten, and it is rolled back": {later(rollback), 2, uncommitted},
		"committed, then the handler fails":       {func(tx pgx.Tx) error { return errors.Join(commit(tx), boom) }, 1, ""},
		"rolled back, and the handler fails":      {func(tx pgx.Tx) error { return errors.Join(rollback(tx), boom) }, 2, boom.Error()},
		"committed, then the handler panics":      {func(tx pgx.Tx) error { _ = commit(tx); panic("oh") }, 1, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, openStore(t, ""))
			stop := s.work(durable.WorkerConfig{}, func(ctx context.Context, run *durable.Run[int]) error {
				s.tries.Add(1)
				tx, err := s.begin(ctx)
				if err != nil {
					return err
				}
				if err := s.effect(ctx, run, tx); err != nil {
					return errors.Join(err, rollback(tx))
				}
				if run.Attempt == 1 {
					return story.first(tx)
				}
				return commit(tx)
			})
			id := s.enqueue()
			record := s.ended(id)
			stop()
			require.Equal(t, store.Succeeded, record.State)
			require.Equal(t, story.attempts, record.Attempt)
			require.Equal(t, fmt.Sprint(story.attempts), string(record.Result))
			require.Len(t, record.Attempts, story.attempts)
			require.EqualValues(t, story.attempts, s.tries.Load())
			require.Equal(t, 1, s.effects(id))
			if story.failure != "" {
				require.Equal(t, story.failure, *record.Attempts[0].Error)
			}
			requireConsistent(t, s.store)
			requireNoLease(t, s.store)
		})
	}
}

func requireNoLease(t *testing.T, store opened) {
	t.Helper()
	var leases int
	require.NoError(t, connect(t, store.url).QueryRow(t.Context(), fmt.Sprintf("select count(*) from %s.leases", store.schema)).Scan(&leases))
	require.Zero(t, leases)
}

// A commit that never comes leaves the run to its last attempt.
func TestCompleteIn_NeverCommittedEndsDead(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	stop := s.work(durable.WorkerConfig{}, func(ctx context.Context, run *durable.Run[int]) error {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		return errors.Join(s.effect(ctx, run, tx), tx.Rollback(ctx))
	})
	id := s.enqueue()
	record := s.ended(id)
	stop()
	require.Equal(t, store.Dead, record.State)
	require.Equal(t, uncommitted, *record.Error)
	require.Len(t, record.Attempts, 4)
	require.Zero(t, s.effects(id))
	requireConsistent(t, s.store)
}

// Fault 30: a handler holds its guarded run for two leases' time while its
// worker is cut off from renewing. No one is given the run, other runs go on,
// and the commit counts.
func TestGuard_KeepsReclaimAwayForTwoLeases(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	r, holder := held(t, s.store)
	other, others := held(t, s.store)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	require.NoError(t, s.store.WithTx(tx).Guard(t.Context(), holder))
	var beats []time.Duration
	for range 4 {
		s.store.age(t, 31*time.Second, holder.Claim) // of a lease of a minute
		began := time.Now()
		renewed, err := s.store.Renew(t.Context(), []lease.ClaimID{other.Claim}, time.Minute)
		require.NoError(t, err)
		require.Len(t, renewed, 1)
		beats = append(beats, time.Since(began))
		done, err := s.store.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		require.NoError(t, err)
		require.Empty(t, done.Runs)
	}
	require.Less(t, slices.Min(beats), 2*time.Second, "beats are not blocked")
	require.NoError(t, s.store.WithTx(tx).Complete(t.Context(), holder, store.Completion{}))
	require.NoError(t, tx.Commit(t.Context()))
	done, err := s.store.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, done.Runs, "the lease ends, and no run with it")
	record, err := s.store.Run(t.Context(), holder.Run)
	require.NoError(t, err)
	require.Equal(t, store.Succeeded, record.State)
	require.Zero(t, record.CrashCount)
	verdicts, err := s.store.Settle(t.Context(), []store.Settlement{
		settlement(r, []store.ClaimedRun{{ID: holder.Run}}, store.Outcome{Kind: store.Failure, Error: uncommitted}),
		settlement(other, []store.ClaimedRun{{ID: others.Run}}, store.Outcome{Kind: store.Success}),
	})
	require.NoError(t, err)
	require.Equal(t, []store.Verdict{store.AlreadyApplied, store.Applied}, verdicts)
	requireConsistent(t, s.store)
	requireNoLease(t, s.store)
}

// A handler that reports while its own transaction has the run would wait for
// itself: it is notified, within a second or so.
func TestGuard_AReportIsAConflictMeanwhile(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	_, holder := held(t, s.store)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.store.WithTx(tx).Guard(t.Context(), holder))
	var took []time.Duration
	for range 3 {
		began := time.Now()
		err = s.store.Report(t.Context(), holder, store.Report{Checkpoint: []byte(`1`)})
		require.ErrorIs(t, err, store.ErrConflict)
		require.ErrorContains(t, err, "the handler's own transaction")
		took = append(took, time.Since(began))
	}
	require.Less(t, slices.Min(took), 4*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, s.store.Report(t.Context(), holder, store.Report{Checkpoint: []byte(`1`)}))
}

// An examination does not wait forever for a table that another user has locked.
func TestExamine_IsBounded(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	held(t, s.store)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), fmt.Sprintf("lock table %s.leases in access exclusive mode", s.store.schema))
	require.NoError(t, err)
	findings, err := s.store.Examine(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotEmpty(t, findings, "what had been found until then")
}

// age lets the lease of a claim grow older.
func (o opened) age(t *testing.T, d time.Duration, claim lease.ClaimID) {
	t.Helper()
	_, err := connect(t, o.url).Exec(t.Context(), fmt.Sprintf(
		"update %s.leases set expires_at = expires_at - $1::bigint * interval '1 microsecond' where claim_id = $2", o.schema), d.Microseconds(), claim)
	require.NoError(t, err)
}

// claimOf returns the claim that holds a run.
func (o opened) claimOf(t *testing.T, run store.RunID) (claim lease.ClaimID) {
	t.Helper()
	require.NoError(t, connect(t, o.url).QueryRow(t.Context(), fmt.Sprintf(
		"select claim_id from %s.leases where $1 = any (run_ids)", o.schema), run).Scan(&claim))
	return claim
}

// With real workers: the first holds its transaction open for twice its lease,
// renewing all the while; the second, and runs beside, are not held up.
func TestGuard_LongTransactionBesideLivingWorkers(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	const lasts = 6 * time.Second // a machine that stops a worker for longer has its run taken over, rightly
	config := durable.WorkerConfig{Terms: lease.Terms{Duration: lasts}}
	handle := func(ctx context.Context, run *durable.Run[int]) error {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if run.Args == 0 {
			s.tries.Add(1)
			if err := run.Guard(ctx, s.store.WithTx(tx)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "select pg_sleep($1)", 2.1*lasts.Seconds()); err != nil {
				return err
			}
		}
		if err := s.effect(ctx, run, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	stops := []func(){s.work(config, handle), s.work(config, handle)}
	long, err := order.Enqueue(t.Context(), s.store, 0)
	require.NoError(t, err)
	for range 20 {
		id := s.enqueue()
		require.Equal(t, store.Succeeded, s.ended(id).State)
		require.Equal(t, 1, s.effects(id))
	}
	record := s.ended(long.ID)
	for _, stop := range stops {
		stop()
	}
	require.Equal(t, store.Succeeded, record.State)
	require.Zero(t, record.CrashCount)
	require.EqualValues(t, 1, s.tries.Load())
	require.Equal(t, 1, s.effects(long.ID))
	requireConsistent(t, s.store)
}

// A zombie comes back after another worker has been given its run: its
// completion is refused, its effect rolled back.
func TestCompleteIn_ZombieIsRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	refused, goOn := make(chan error, 1), make(chan struct{})
	handle := func(ctx context.Context, run *durable.Run[int]) error {
		zombie := run.CrashCount == 0
		if zombie {
			claim := s.store.claimOf(t, run.ID)
			for crashes := 0; crashes == 0; { // a beat may come between, or another worker's reclaim
				s.store.age(t, time.Hour, claim)
				if _, err := s.store.Reclaim(context.WithoutCancel(ctx), store.ReclaimRequest{MaxCrashes: 4, Limit: 10}); err != nil {
					return err
				}
				record, err := s.store.Run(context.WithoutCancel(ctx), run.ID)
				if err != nil {
					return err
				}
				crashes = record.CrashCount
			}
			<-goOn
			ctx = context.WithoutCancel(ctx)
		}
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		err = s.effect(ctx, run, tx)
		if err == nil {
			return tx.Commit(ctx)
		}
		refused <- err
		return errors.Join(err, tx.Rollback(ctx))
	}
	stops := []func(){s.work(durable.WorkerConfig{}, handle), s.work(durable.WorkerConfig{}, handle)}
	id := s.enqueue()
	record := s.ended(id)
	close(goOn)
	select {
	case err := <-refused:
		require.ErrorIs(t, err, lease.ErrLost)
	case <-time.After(time.Minute):
		t.Error("the zombie was not refused")
	}
	for _, stop := range stops {
		stop()
	}
	require.Equal(t, store.Succeeded, record.State)
	require.Equal(t, 1, record.CrashCount)
	require.Equal(t, 1, s.effects(id))
	requireConsistent(t, s.store)
}

// Whatever a handler enqueues beside its run is there whatever becomes of the
// attempt; what it enqueues in its transaction only with it.
func TestRunEnqueues(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	beside, within := newRun(), newRun()
	stop := s.work(durable.WorkerConfig{}, func(ctx context.Context, run *durable.Run[int]) error {
		if run.Attempt == 1 {
			receipts, err := run.Enqueue(ctx, beside)
			if err != nil || receipts[0].Existing {
				return fmt.Errorf("receipts %v: %w", receipts, err)
			}
		}
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := s.store.WithTx(tx).Enqueue(ctx, within); err != nil {
			return err
		}
		if err := s.effect(ctx, run, tx); err != nil {
			return err
		}
		if run.Attempt == 1 {
			return errors.New("the first attempt fails")
		}
		return tx.Commit(ctx)
	})
	id := s.enqueue()
	require.Equal(t, store.Succeeded, s.ended(id).State)
	stop()
	for _, run := range []store.NewRun{beside, within} {
		record, err := s.store.Run(t.Context(), run.ID)
		require.NoError(t, err)
		require.Equal(t, store.Pending, record.State)
	}
	counts, err := s.store.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, counts[store.Pending].N)
	requireConsistent(t, s.store)
}
