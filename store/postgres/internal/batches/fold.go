package batches

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// foldedTogether bounds the batches of one fold, foldedChanges their changes.
	foldedTogether = 64
	foldedChanges  = 5000
	// cancelledTogether bounds the members that one fold has cancelled of a batch.
	cancelledTogether = 1000
	// locked is when a fold looks again at a batch that another process has.
	locked = 10 * time.Millisecond
	// adding is when one looks again at a batch to be closed or cancelled to which runs are being
	// added. It is written down each time, so it is rarer.
	adding = 100 * time.Millisecond
	// refused is when it looks again at one that the database refuses to change.
	refused = time.Second
)

// Fold adds to the counts of batches what has changed of them, and decides about those that are
// whole. What follows for others is left as notices. It returns after which time it has to be called
// again; negative: when something has changed.
func (s *Batches) Fold(ctx context.Context) (again time.Duration, err error) {
	if err := s.schema.Usable(ctx); err != nil {
		return -1, s.db.Fail("fold batches", err)
	}
	ids, again, err := s.changed(ctx)
	if err != nil || len(ids) == 0 {
		return again, s.failed(err)
	}
	wait, err := s.together(ctx, ids)
	if conn.RefusesRows(err) {
		wait, err = s.apart(ctx, ids, err)
	}
	if err != nil {
		return -1, s.failed(err)
	}
	if again, err = s.next(ctx); err != nil {
		return -1, s.failed(err)
	}
	if full := len(ids) >= foldedTogether; full || again < 0 || again > wait {
		return wait, nil
	}
	return max(again, wait), nil
}

func (s *Batches) failed(err error) error {
	if err == nil {
		return nil
	}
	return s.db.Fail("fold batches", err)
}

// changed returns batches to be folded. Where more have changed than one fold takes, the next one
// continues behind them, whichever others are due. Idle workers ask, over a connection that they have
// anyway.
func (s *Batches) changed(ctx context.Context) (ids conn.UUIDs, next time.Duration, err error) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	var last uuid.UUID
	changes := 0
	b := s.db.Hot(ctx)
	b.Add(queries.ChangedBatches, after, int32(foldedTogether)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var changed bool
			if err := rows.Scan(&id, &changed); err != nil {
				return err
			}
			if changed {
				changes, last = changes+1, id
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		return rows.Err()
	})
	addNext(b, &next)
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil {
		return nil, -1, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case changes >= foldedTogether:
		s.after = last
	case after != uuid.Nil:
		s.after, next = uuid.Nil, 0
	}
	now := lease.Elapsed()
	resting := len(ids)
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return s.aside[id] > now })
	if len(ids) < resting && next >= 0 {
		next = max(next, refused)
	}
	return ids, next, nil
}

func (s *Batches) next(ctx context.Context) (next time.Duration, err error) {
	b := s.db.Hot(ctx)
	addNext(b, &next)
	err = s.db.Send(ctx, s.db.Engine, b)
	return next, err
}

func addNext(b *conn.Batch, next *time.Duration) {
	*next = -1
	b.Add(queries.NextBatch).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var micros int64
			if err := rows.Scan(&micros); err != nil {
				return err
			}
			*next = max(conn.FromMicro(micros), 0)
		}
		return rows.Err()
	})
}

// apart folds batches one by one, after the database has refused to change one of them.
func (s *Batches) apart(ctx context.Context, ids conn.UUIDs, cause error) (wait time.Duration, err error) {
	s.db.Log.Warn("the database refuses to change a batch; folding one at a time", "event", "batch.refused", "error", cause)
	for _, id := range ids {
		pause, err := s.together(ctx, conn.UUIDs{id})
		if conn.RefusesRows(err) {
			s.db.Log.Warn("a batch cannot be counted, will be retried", "event", "batch.set_aside", "batch", id, "error", err)
			s.mu.Lock()
			s.aside[id] = lease.Elapsed() + refused
			s.mu.Unlock()
			pause, err = refused, nil
		}
		if err != nil {
			return wait, err
		}
		wait = max(wait, pause)
	}
	return wait, nil
}

// together folds batches in one transaction. It returns how long those that it has left alone have
// to wait.
func (s *Batches) together(ctx context.Context, ids conn.UUIDs) (wait time.Duration, err error) {
	err = s.db.InAloofTx(ctx, func(tx pgx.Tx) error {
		f := &folding{s: s, tx: tx}
		err := f.do(ctx, ids)
		wait = f.wait
		return err
	})
	return wait, err
}

// folding is one fold under way.
type folding struct {
	s    *Batches
	tx   pgx.Tx
	wait time.Duration
}

// folded is a batch whose counts are as far as they are known.
type folded struct {
	store.Batch

	cursor   uuid.UUID
	now      time.Time
	changing bool // changes of it are left
}

func (f *folding) do(ctx context.Context, ids conn.UUIDs) error {
	mine, err := f.lock(ctx, queries.LockBatches, ids)
	if err != nil {
		return err
	}
	if len(mine) < len(ids) {
		f.wait = locked
	}
	found, err := f.fold(ctx, ids, mine)
	if err != nil {
		return err
	}
	var closing conn.UUIDs
	for i := range found {
		if b := &found[i]; rules.NeedsLock(&b.Batch, b.now) {
			closing = append(closing, b.ID)
		}
	}
	whole := map[uuid.UUID]bool{}
	if len(closing) > 0 {
		got, err := f.lock(ctx, queries.LockWhole, closing)
		if err != nil {
			return err
		}
		for _, id := range got {
			whole[id] = true
		}
		if found, err = f.fold(ctx, nil, mine); err != nil { // what was added until then counts
			return err
		}
	}
	return f.decide(ctx, found, whole)
}

func (f *folding) lock(ctx context.Context, statement string, ids conn.UUIDs) (got conn.UUIDs, err error) {
	b := f.s.db.GuardedFor(ctx, conn.HeldLimit)
	b.Add(statement, ids).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { got = append(got, id) })
	})
	return got, f.s.db.Send(ctx, f.tx, b)
}

// fold adds changes to the counts of locked batches, and reads the batches in a later snapshot.
// Changes of batches that are gone are deleted.
func (f *folding) fold(ctx context.Context, named, mine conn.UUIDs) (found []folded, err error) {
	b := f.s.db.NewBatch()
	if len(named) > len(mine) {
		b.Add(queries.PruneChanges, named)
	}
	if len(mine) > 0 {
		b.Add(queries.FoldChanges, mine, int32(foldedChanges))
		b.Add(queries.FoldedBatches, mine).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var one folded
				var cursor *uuid.UUID
				if err := rows.Scan(append(columns(&one.Batch), &cursor, &one.now, &one.changing)...); err != nil {
					return err
				}
				if cursor != nil {
					one.cursor = *cursor
				}
				inUTC(&one.Batch)
				found = append(found, one)
			}
			return rows.Err()
		})
	}
	if b.Len() == 0 {
		return nil, nil
	}
	return found, f.s.db.Send(ctx, f.tx, b)
}

// decide decides about batches that are whole, and has members of cancelled ones cancelled.
func (f *folding) decide(ctx context.Context, found []folded, whole map[uuid.UUID]bool) error {
	b := f.s.db.NewBatch()
	for i := range found {
		one := &found[i]
		if one.changing {
			f.wait = min(f.wait, locked)
			continue
		}
		d := rules.DecideBatch(one.Batch, one.now, whole[one.ID])
		next := rules.BatchTimer(&d.Batch)
		if !whole[one.ID] && rules.NeedsLock(&d.Batch, one.now) {
			next = one.now.Add(adding)
		}
		if d.Cancelled && d.EndedAt == nil {
			more, err := f.cancel(ctx, one)
			if err != nil {
				return err
			}
			if more {
				next = one.now
			}
		}
		b.Add(queries.DecideBatch, int16(d.State), d.Closed, d.Cancelled, d.FailedAt, d.EndedAt, conn.TimeOrNull(next), d.Reason, one.ID, d.Notify)
	}
	if b.Len() == 0 {
		return nil
	}
	return f.s.db.Send(ctx, f.tx, b)
}

// cancel has the next members of a cancelled batch cancelled, and reports whether there may be more.
func (f *folding) cancel(ctx context.Context, one *folded) (more bool, err error) {
	b := f.s.db.NewBatch()
	b.Add(queries.CancelMembers, one.ID, one.cursor, int32(cancelledTogether)).QueryRow(func(row pgx.Row) error {
		var members int64
		err := row.Scan(&members)
		more = members == cancelledTogether
		return err
	})
	return more, f.s.db.Send(ctx, f.tx, b)
}
