package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// ownTx is a transaction of the caller's, over the caller's own pool.
type ownTx struct {
	durable.Tx
	commit func() error
}

// ownDoors are the ways to begin one.
func ownDoors(t *testing.T, pool *pgxpool.Pool) map[string]func(db opened) ownTx {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	return map[string]func(db opened) ownTx{
		"pgx": func(db opened) ownTx {
			tx, err := pool.Begin(ctx)
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(ctx) })
			return ownTx{db.WithTx(tx), func() error { return tx.Commit(ctx) }}
		},
		"database/sql": func(db opened) ownTx {
			from := stdlib.OpenDBFromPool(pool)
			tx, err := from.BeginTx(ctx, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return ownTx{db.WithSQLTx(tx), func() error { return errors.Join(tx.Commit(), from.Close()) }}
		},
	}
}

// everything is a run of each sort, on a queue that is new.
func everything(queue, key string) (runs []store.NewRun) {
	limits := []store.LimitUse{use("places", key), use("rate", "")}
	for _, limited := range [][]store.LimitUse{nil, limits, limits[:1]} {
		for i, options := range [][]durable.Option{
			nil,
			{durable.Unique(key + "unique")},
			{durable.UniqueFor(key+"for", time.Hour)},
			{durable.Replace(key + "replace")},
			{durable.Debounce(key+"debounce", time.Minute, time.Hour)},
			{durable.After(time.Hour), durable.Metadata(map[string]string{"a": "b"}), durable.Tags("c")},
		} {
			run := newRun(append(options, durable.OnQueue(fmt.Sprintf("%s-%d", queue, i)), durable.Priority(len(limited)))...)
			if run.Limits = limited; run.Key.Text != "" {
				run.Key.Text += fmt.Sprint(len(limited))
			}
			runs = append(runs, run)
		}
	}
	return runs
}

// TestNew_TransactionsThatHaveAllConnections: as many transactions as the caller's pool has
// connections, each of which stores all there is, with what a handler asks of its run
// meanwhile. No call waits for a connection of that pool, which only another of the transactions
// could give back: neither while the process knows no lane and no limit, nor after a declaration.
func TestNew_TransactionsThatHaveAllConnections(t *testing.T) {
	t.Parallel()
	const conns = 3
	first := openStore(t, "")
	limits := []store.Limit{semaphore("places", 5), {Name: "rate", Kind: store.LimitTokenBucket, Max: 1000, Period: time.Second, Burst: 1000}}
	pool := poolOf(t, first.url, func(config *pgxpool.Config) { config.MaxConns = conns })
	for name, begin := range ownDoors(t, pool) {
		db := onPool(t, first, pool)
		for _, cache := range []string{"cold", "declared"} {
			_, err := first.Enqueue(t.Context(), newRuns(2*conns)...)
			require.NoError(t, err)
			r, held := claim(t, first, worker("a"), 2*conns, time.Minute)
			require.Len(t, held, 2*conns)
			declarer := first
			if cache == "declared" {
				declarer = db
			}
			require.NoError(t, declarer.Declare(t.Context(), store.Declaration{Worker: worker("w"), Limits: limits}))
			var open []ownTx
			for range conns {
				open = append(open, begin(db))
			}
			waited := pool.Stat().EmptyAcquireCount()
			done := make(chan error, conns)
			for i, tx := range open {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					done <- storesAll(ctx, db, tx, fmt.Sprintf("%s-%s-%d", name[:3], cache, i), holderOf(r, held[2*i]), holderOf(r, held[2*i+1]))
				}()
			}
			for range conns {
				require.NoError(t, <-done, "%s, %s", name, cache)
			}
			for _, tx := range open {
				require.NoError(t, tx.commit())
			}
			require.Equal(t, waited, pool.Stat().EmptyAcquireCount(), "%s, %s: a call has waited for a connection", name, cache)
		}
		before := pool.Stat().EmptyAcquireCount()
		db.Close() // ends what has waited in the background
		require.Equal(t, before, pool.Stat().EmptyAcquireCount(), name)
	}
}

func holderOf(r store.ClaimRequest, run store.ClaimedRun) store.Holder {
	return store.Holder{Run: run.ID, Claim: r.Claim}
}

// storesAll does what a handler and its transaction may do: own is the run that the transaction completes, other one
// that executes meanwhile.
func storesAll(ctx context.Context, db opened, tx ownTx, name string, own, other store.Holder) error {
	if err := tx.Guard(ctx, own); err != nil {
		return err
	}
	for try := range 2 {
		runs := everything(name, fmt.Sprint(name, "inside", try))
		if _, err := tx.Enqueue(ctx, runs...); err != nil {
			return err
		}
		if _, err := tx.Run(ctx, runs[0].ID); err != nil {
			return err
		}
	}
	if _, err := tx.Runs(ctx, store.Filter{}); err != nil {
		return err
	}
	for try := range 2 {
		if _, err := db.EnqueueUnder(ctx, other, everything(name+"-under", fmt.Sprint(name, "under", try))...); err != nil {
			return fmt.Errorf("enqueue under: %w", err)
		}
	}
	note := "x"
	if err := db.Report(ctx, other, store.Report{Note: &note, Checkpoint: []byte(`1`)}); err != nil {
		return err
	}
	if _, err := db.Checkpoint(ctx, other.Run); err != nil {
		return err
	}
	if _, err := db.EnqueueUnder(ctx, own, newRun()); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("its own run is locked: %w", err)
	}
	if err := db.Report(ctx, own, store.Report{Note: &note}); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("its own run is locked: %w", err)
	}
	return tx.Complete(ctx, own, store.Completion{})
}
