package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// Sweepers with almost no retention beside workers that claim, settle and crash
// and an operator who retries: nothing comes back to life, nothing is left of
// what is gone, and nothing that has a lease is taken.
func TestSweepBesideEverythingElse(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	pool, err := pgxpool.New(t.Context(), db.url)
	require.NoError(t, err)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	enough := time.Now().Add(6 * time.Second)
	var deleted, retried, settled atomic.Int64
	actors := map[string]func(context.Context) error{
		"enqueue": func(ctx context.Context) error {
			_, err := db.Enqueue(ctx, newRuns(20)...)
			return err
		},
		"work":      func(ctx context.Context) error { return workOnce(ctx, db, &settled) },
		"work too":  func(ctx context.Context) error { return workOnce(ctx, db, &settled) },
		"operate":   func(ctx context.Context) error { return retryOnce(ctx, pool, db.schema, &retried) },
		"sweep":     sweepAgain(pool, db, &deleted),
		"sweep too": sweepAgain(pool, db, &deleted),
		"reclaim": func(ctx context.Context) error {
			_, err := db.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
			return err
		},
	}
	var all sync.WaitGroup
	for name, act := range actors {
		all.Go(func() {
			for ctx.Err() == nil && (deleted.Load() == 0 || retried.Load() == 0 || time.Now().Before(enough)) {
				if err := act(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d deleted, %d retried, %d settled", deleted.Load(), retried.Load(), settled.Load())
	require.Positive(t, deleted.Load())
	require.Positive(t, retried.Load())
	requireNoOrphans(t, db)
}

// workOnce claims some runs and settles them, in all ways.
func workOnce(ctx context.Context, db opened, settled *atomic.Int64) error {
	r, err := request(ctx, db, worker("w"), 10, time.Minute)
	if err != nil {
		return err
	}
	runs, err := db.Claim(ctx, r)
	if err != nil || len(runs) == 0 {
		return err
	}
	kinds := []store.OutcomeKind{store.Success, store.Death, store.Cancellation, store.Failure, store.HandedBack}
	s := settlement(r, runs, store.Outcome{Kind: store.Success})
	for i := range s.Runs {
		s.Runs[i].Outcome = store.Outcome{Kind: kinds[rand.IntN(len(kinds))], Error: "x"}
	}
	verdicts, err := db.Settle(ctx, []store.Settlement{s})
	for slices.Contains(verdicts, store.Deferred) { // the one that examined a row was stopped by a busy machine
		var rest []store.Verdict
		rest, err = db.Settle(ctx, []store.Settlement{s})
		for i := range rest {
			if verdicts[i] == store.Deferred {
				verdicts[i] = rest[i]
			}
		}
		if err != nil {
			return err
		}
	}
	for i, verdict := range verdicts {
		if verdict != store.Applied {
			return fmt.Errorf("run %s of a claim with a lease: verdict %d", s.Runs[i].ID, verdict)
		}
	}
	settled.Add(int64(len(verdicts)))
	return err
}

// sweepAgain sweeps from the beginning each time.
func sweepAgain(pool *pgxpool.Pool, store opened, deleted *atomic.Int64) func(context.Context) error {
	request := sweeper()
	request.Retention, request.RetentionDead, request.Limit = time.Millisecond, 3*time.Millisecond, 50
	return func(ctx context.Context) error {
		_, err := pool.Exec(ctx, fmt.Sprintf("update %s.sweep set position = '00000000-0000-0000-0000-000000000000', block = -1, began_at = '-infinity', sweeper = null", store.schema))
		if err != nil {
			return err
		}
		for range 20 {
			swept, err := store.Sweep(ctx, request)
			if err != nil || len(swept.Returned) > 0 {
				return errors.Join(err, fmt.Errorf("swept %+v", swept))
			}
			if deleted.Add(int64(swept.Deleted)); swept.Done || swept.Busy {
				break
			}
		}
		return nil
	}
}

// retryOnce does what an operator's retry does: the row first, then all that
// goes with it, in one transaction that may also be rolled back.
func retryOnce(ctx context.Context, pool *pgxpool.Pool, schema string, retried *atomic.Int64) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	tag, err := tx.Exec(ctx, strings.ReplaceAll(`with r as (select id from %s.runs where state = 4 limit 3 for update skip locked),
		u as (update %s.runs set state = 0, finished_at = null, due_at = now() where id in (select id from r) and state = 4 returning id, lane, due_at),
		p as (delete from %s.problems where run_id in (select id from u))
		insert into %s.ready (lane, due_at, run_id) select lane, due_at, id from u`, "%s", schema))
	if err != nil || rand.IntN(4) == 0 {
		return err
	}
	retried.Add(tag.RowsAffected())
	return tx.Commit(ctx)
}
