package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// sweepFailures bounds the statements of one step that fail. What they have not
// come to is left to the next full pass: when all is refused, a step is not to
// take forever.
const sweepFailures = 40

// part sends statements that can be rolled back alone, and rolls them back when
// the database refuses them.
func (w *sweeping) part(ctx context.Context, add func(*conn.Batch)) error {
	b := w.sweeper.db.NewBatch()
	b.Add(queries.BeginPart)
	add(b)
	b.Add(queries.EndPart)
	err := w.sweeper.db.Send(ctx, w.tx, b)
	if conn.RefusesRows(err) {
		w.failed++
		if undone := w.queries.UndoPart(ctx); undone != nil {
			return undone
		}
	}
	return err
}

// goOn skips what was refused; the next full pass comes to it again.
func (w *sweeping) goOn(err error, kind, name string) error {
	if !conn.RefusesRows(err) {
		return err
	}
	w.done.SetAside = append(w.done.SetAside, store.SetAside{Kind: kind, Name: name, Again: store.SweepPassEvery, Err: err})
	return nil
}

// prune forgets cancel requests, workers, changes and statistics that nothing needs any more, after the
// step and apart from it: what cannot be forgotten keeps no run from being deleted.
// A table for which that fails rests, each time for longer.
func (s *Sweeper) prune(ctx context.Context, step *sweeping) {
	if step.done.Done {
		s.pruneTable(ctx, step, "cancels", queries.PruneCancels)
		s.tidyLimits(ctx, step)
		if kept := step.request.RetentionAudit; kept > 0 {
			s.pruneTable(ctx, step, "audit", queries.PruneAudit, int32(rules.AuditPruned), conn.Micro(kept))
		}
	}
	if step.done.Done {
		s.pruneBatches(ctx, step)
	}
	if step.workers > 0 {
		s.pruneTable(ctx, step, "workers", queries.PruneWorkers, conn.Micro(step.workers))
	}
	if step.begins {
		s.mendTurns(ctx, step)
		for _, span := range store.Spans() {
			s.pruneTable(ctx, step, "stats", queries.PruneStats, int16(span), conn.Micro(span.Kept()), int32(statsPruned))
		}
	}
}

const (
	// batchesPruned bounds the ended batches of one statement, and membersFreed their members.
	batchesPruned = 1_000
	membersFreed  = 5_000
	// batchesFor bounds how long one sweep deletes batches.
	batchesFor = time.Second
)

// pruneBatches deletes ended batches that are no longer kept, and frees their members first, which
// the sweep then deletes as it does other runs. It continues while it finds some: batches may end
// faster than sweeps come.
func (s *Sweeper) pruneBatches(ctx context.Context, step *sweeping) {
	kept := conn.Micro(rules.BatchKept(&store.Batch{State: store.BatchSucceeded}, step.request))
	failed := conn.Micro(rules.BatchKept(&store.Batch{State: store.BatchFailed}, step.request))
	for began, pruned := lease.Elapsed(), int64(1); pruned > 0 && lease.Elapsed()-began < batchesFor; {
		pruned = 0
		s.pruneBy(ctx, step, "batches", func(b *conn.Batch) {
			b.Add(queries.SweepBatches, min(kept, failed), kept, failed, int32(batchesPruned), int32(membersFreed)).QueryRow(func(row pgx.Row) error {
				return row.Scan(&pruned)
			})
		})
	}
}

// statsPruned bounds the steps of a span that one full pass deletes: more than an hour
// of the minutes, and of the quarters, of every job on every queue that is counted apart.
const statsPruned = 100_000

func (s *Sweeper) pruneTable(ctx context.Context, step *sweeping, table, statement string, args ...any) {
	s.pruneBy(ctx, step, table, func(b *conn.Batch) { b.Add(statement, args...) })
}

// permitsPruned bounds the permits that nothing holds which one pass deletes, and
// gatesPruned the gates that have nothing to remember.
const (
	permitsPruned = 1_000
	gatesPruned   = 10_000
	// turnsPruned bounds the gates whose turns are deleted that no run waits for, turnsExamined
	// the turns of each line, and turnsAfter is how long these must have been due: a worker that
	// reads their line takes them before.
	turnsPruned   = 1_000
	turnsExamined = 1_000
	turnsAfter    = time.Minute
)

// tidyLimits forgets idle gates with their turns, and permits that nothing holds, of which a
// sound store has none.
func (s *Sweeper) tidyLimits(ctx context.Context, step *sweeping) {
	var repaired []int64
	s.pruneBy(ctx, step, "permits", func(b *conn.Batch) {
		b.Add(queries.PrunePermits, int32(permitsPruned)).Query(func(rows pgx.Rows) error {
			gates, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			repaired = gates
			return err
		})
	})
	s.pruneBy(ctx, step, "unwanted turns", func(b *conn.Batch) {
		b.Add(queries.LockUnwanted, conn.Micro(turnsAfter), int32(turnsExamined), int32(turnsPruned))
		b.Add(queries.PruneTurns)
	})
	s.pruneBy(ctx, step, "gates", func(b *conn.Batch) {
		b.Add(queries.PruneGates, int32(gatesPruned))
		b.Add(queries.PruneKept, conn.Micro(admit.KeepForIsolated+admit.SkipForIsolated), int32(gatesPruned))
	})
	s.tally.Repaired(repaired)
	step.done.Repaired += len(repaired)
}

// mendTurns has workers look at gates with room that none would look at, of which a sound
// store has none.
func (s *Sweeper) mendTurns(ctx context.Context, step *sweeping) {
	found, err := s.reader.LimitFaults(ctx)
	var gates []int64
	for i := range found {
		if store.LimitFaultKind(found[i].Fault) == store.KeyStuck {
			gates = append(gates, found[i].Gate)
		}
	}
	if err != nil || len(gates) == 0 {
		if err != nil && ctx.Err() == nil {
			s.db.Log.Warn("limits could not be checked", "event", "limit.check_failed", "error", err)
		}
		return
	}
	s.pruneBy(ctx, step, "turns", func(b *conn.Batch) {
		b.Add(queries.MendTurns, gates, int32(rules.FaultsLines)).Exec(func(pgconn.CommandTag) error {
			s.tally.Repaired(gates)
			step.done.Repaired += len(gates)
			return nil
		})
	})
}

// pruneBy sends statements that prune a table. One that fails keeps nothing else from being
// done: the table rests, each time for longer.
func (s *Sweeper) pruneBy(ctx context.Context, step *sweeping, table string, add func(*conn.Batch)) {
	if ctx.Err() != nil || slices.Contains(s.unpruned.Resting(lease.Elapsed()), table) {
		return
	}
	err := s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		add(b)
		return s.db.Send(ctx, s.db.General, b)
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		again := s.unpruned.Put(table, lease.Elapsed())
		step.done.SetAside = append(step.done.SetAside, store.SetAside{Kind: "table", Name: table, Again: again, Err: err})
	}
}
