package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

var _ store.Tx = (*Tx)(nil)

// Tx is the store bound to the caller's transaction. It lives as long as
// that transaction, and is for one goroutine at a time, as the transaction is.
// Other processes, and the store itself, hear of what it did within a moment
// after the commit.
type Tx struct {
	store *Store
	tx    *sql.Tx
	found bool // the transaction is on the store's file
}

// DSN names the store's file to database/sql, with the driver "sqlite" that this
// package brings along, for tables of the caller's own in the same file:
//
//	db, err := sql.Open("sqlite", store.DSN())
//
// Connections made with it wait for the write lock as long as the store does,
// are as safe from the loss of power as the store, and begin every transaction
// as a writer (BEGIN IMMEDIATE). A transaction that begins by reading instead
// fails with SQLITE_BUSY, immediately, when it writes after another process has. Names
// of tables are shared with the store's, which has some as plain as runs, jobs,
// workers and locks: give the caller's a prefix.
func (s *Store) DSN() string {
	return s.file.dsnFor("immediate", fmt.Sprintf("busy_timeout(%d)", s.lockTimeout.Milliseconds()), s.level)
}

// WithTx binds the store to a transaction on the store's own file; see DSN. From
// its first write to its end the transaction holds the write lock of the file,
// and no process writes meanwhile, heartbeats included: it has to be over well
// before a lease expires.
func (s *Store) WithTx(tx *sql.Tx) *Tx { return &Tx{store: s, tx: tx} }

// Enqueue stores the runs within the transaction; see durable.Tx.
func (t *Tx) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(runs) == 0 {
		return nil, nil
	}
	if err := t.store.checkLimits(ctx, runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	call := &call{runs: runs}
	err := t.within(ctx, func(ctx context.Context, c *change) error {
		return t.store.store(ctx, c, newLanes(), call) // lanes made here may be rolled back: they are not remembered
	})
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return call.receipts, nil
}

// Guard takes the write lock of the file until the transaction ends; see
// durable.Tx.
func (t *Tx) Guard(ctx context.Context, holder store.Holder) error {
	err := t.within(ctx, func(ctx context.Context, c *change) error { return c.guard(ctx, holder) })
	if err != nil {
		return fmt.Errorf("guard run %s: %w", holder.Run, err)
	}
	return nil
}

// Complete ends the run as succeeded within the transaction; see durable.Tx.
func (t *Tx) Complete(ctx context.Context, holder store.Holder, completion store.Completion) error {
	if err := completion.Check(); err != nil {
		return fmt.Errorf("complete run %s: %w", holder.Run, err)
	}
	err := t.within(ctx, func(ctx context.Context, c *change) error {
		row, err := c.SettleSuccess(ctx, queries.SettleSuccessParams{
			FinishedAt: &c.now, Result: completion.Result, ID: holder.Run[:], ClaimID: holder.Claim[:],
		})
		if errors.Is(err, sql.ErrNoRows) {
			return lease.ErrLost
		}
		if err == nil && row.Limits != nil {
			err = c.release(ctx, holder.Run[:], store.Succeeded, row.Limits)
		}
		if err != nil || completion.Log == "" {
			return err
		}
		settled := store.Settled{ID: holder.Run, Outcome: store.Outcome{Kind: store.Success, Log: completion.Log}}
		return c.record(ctx, *row.Worker, &settled, row.Attempt, row.Fence, row.StartedAt)
	})
	if err != nil {
		return fmt.Errorf("complete run %s: %w", holder.Run, err)
	}
	return nil
}

// PutSchedule creates a program's schedule, or replaces it, within the transaction; see
// durable.Tx.
func (t *Tx) PutSchedule(ctx context.Context, put store.Schedule) error {
	row, err := putRow(&put)
	if err == nil {
		err = t.within(ctx, func(ctx context.Context, c *change) error { return c.putSchedule(ctx, row, put.Paused) })
	}
	if err != nil {
		return fmt.Errorf("put schedule %s: %w", put.Name, err)
	}
	return nil
}

// ChangeSchedule pauses, resumes or deletes a schedule within the transaction; see durable.Tx.
func (t *Tx) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	err := t.within(ctx, func(ctx context.Context, c *change) error { return t.store.changeSchedule(ctx, c, name, action, by) })
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	return nil
}

// Run returns one run as the transaction sees it.
func (t *Tx) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	err := t.usable(ctx)
	var record store.Record
	if err == nil {
		record, err = findRun(ctx, queries.New(t.tx), id)
	}
	if err != nil {
		return store.Record{}, fmt.Errorf("run %s: %w", id, t.store.explain(err))
	}
	return record, nil
}

// Runs lists runs as the transaction sees them.
func (t *Tx) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if _, _, _, err := filter.Range(); err != nil {
		return store.Page{}, err
	}
	err := t.usable(ctx)
	var page store.Page
	if err == nil {
		page, err = findRuns(ctx, queries.New(t.tx), t.store.clock.now(), filter)
	}
	if err != nil {
		return store.Page{}, fmt.Errorf("runs: %w", t.store.explain(err))
	}
	return page, nil
}

// within does work in the transaction, all of it or nothing, whatever the
// caller does with the transaction then. It is not interrupted by the end of
// ctx: it is short.
func (t *Tx) within(ctx context.Context, work func(context.Context, *change) error) error {
	if err := t.usable(ctx); err != nil {
		return t.store.explain(err)
	}
	steady := context.WithoutCancel(ctx)
	if err := t.exec(steady, "Savepoint"); err != nil {
		return t.store.explain(err)
	}
	err := work(steady, &change{prepared: &prepared{Queries: queries.New(t.tx)}, now: t.store.clock.now()})
	if err != nil {
		err = errors.Join(err, t.exec(steady, "RollbackToSavepoint"))
	}
	return t.store.explain(errors.Join(err, t.exec(steady, "ReleaseSavepoint")))
}

func (t *Tx) exec(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, texts()[statement])
	return err
}

// usable checks, once, that the transaction is on the store's file, and that the
// schema is there.
func (t *Tx) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil || t.found {
		return err
	}
	if _, err := t.store.read(ctx); err != nil {
		return err
	}
	var path string
	if err := t.tx.QueryRowContext(ctx, texts()["MainFile"]).Scan(&path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || !os.SameFile(info, t.store.file.main) {
		return fmt.Errorf("%w: the transaction is on %q, the store on %q", store.ErrInvalid, path, t.store.file.path)
	}
	t.found = true
	return nil
}

// guard finds the holder's run, or answers that it is lost.
func (c *change) guard(ctx context.Context, holder store.Holder) error {
	return orLost(c.GuardRun(ctx, queries.GuardRunParams{ID: holder.Run[:], ClaimID: holder.Claim[:]}))
}

// orLost is the verdict of a statement that has to touch one run.
func orLost(rows int64, err error) error {
	if err == nil && rows != 1 {
		return lease.ErrLost
	}
	return err
}

// EnqueueUnder stores the runs while the holder's run is its claim's.
func (s *Store) EnqueueUnder(ctx context.Context, holder store.Holder, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	if err := s.checkLimits(ctx, runs); err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	call, fresh := &call{runs: runs, holder: holder.Run}, newLanes()
	err := s.write(ctx, enqueues, func(ctx context.Context, c *change) error {
		if err := c.guard(ctx, holder); err != nil {
			return err
		}
		return s.store(ctx, c, fresh, call)
	})
	if busy(err) {
		err = fmt.Errorf("%w: the file stays locked: if one of your own transactions holds it, enqueue through that transaction: %w", store.ErrConflict, err)
	}
	if err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	s.lanes.add(fresh)
	s.hint()
	return call.receipts, nil
}
