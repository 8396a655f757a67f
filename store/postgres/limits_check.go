package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// CheckLimits looks for what must not be.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("check limits", err)
	}
	rows, err := s.limitFaults(ctx)
	if err != nil {
		return nil, s.fail("check limits", err)
	}
	faults := make([]store.LimitFault, len(rows))
	for i := range rows {
		row := &rows[i]
		run, _ := uuid.Parse(row.Run) // empty: none
		faults[i] = rules.LimitFault(store.LimitFaultKind(row.Fault), row.Name, row.Key, run, int(row.Used), int(row.Most))
	}
	return faults, nil
}

func (s *Store) limitFaults(ctx context.Context) (found []queries.CheckLimitsRow, err error) {
	b := s.guarded(ctx)
	b.add(queries.CheckLimits, int32(rules.FaultsGates), int32(rules.FaultsMost), int32(rules.FaultsLines)).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[queries.CheckLimitsRow])
		return err
	})
	return found, s.send(ctx, s.general, b)
}

// permitsPruned bounds the permits that nothing holds which one pass deletes, and
// gatesPruned the gates that have nothing to remember.
const (
	permitsPruned = 1_000
	gatesPruned   = 10_000
)

// tidyLimits forgets idle gates, and permits that nothing holds, of which a sound store
// has none.
func (s *Store) tidyLimits(ctx context.Context, step *sweeping) {
	repaired := 0
	s.pruneBy(ctx, step, "permits", func(b *batch) {
		b.add(queries.PrunePermits, int32(permitsPruned)).Query(func(rows pgx.Rows) error {
			gates, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			repaired = len(gates)
			return err
		})
	})
	s.pruneBy(ctx, step, "gates", func(b *batch) {
		b.add(queries.PruneGates, int32(gatesPruned))
		b.add(queries.PruneKept, micro(admit.KeepForIsolated+admit.SkipForIsolated), int32(gatesPruned))
	})
	step.done.Repaired += repaired
}

// mendTurns has workers look at gates with room that none would look at, of which a sound
// store has none.
func (s *Store) mendTurns(ctx context.Context, step *sweeping) {
	found, err := s.limitFaults(ctx)
	var gates []int64
	for i := range found {
		if store.LimitFaultKind(found[i].Fault) == store.KeyStuck {
			gates = append(gates, found[i].Gate)
		}
	}
	if err != nil || len(gates) == 0 {
		if err != nil && ctx.Err() == nil {
			s.config.Logger.Warn("limits could not be checked", "error", err)
		}
		return
	}
	s.pruneBy(ctx, step, "turns", func(b *batch) {
		b.add(queries.MendTurns, gates, int32(rules.FaultsLines)).Exec(func(pgconn.CommandTag) error {
			step.done.Repaired += len(gates)
			return nil
		})
	})
}

// pruneBy sends statements that prune a table. One that fails keeps nothing else from being
// done: the table rests, each time for longer.
func (s *Store) pruneBy(ctx context.Context, step *sweeping, table string, add func(*batch)) {
	if ctx.Err() != nil || slices.Contains(s.unpruned.Resting(lease.Elapsed()), table) {
		return
	}
	err := s.repeat(ctx, func() error {
		b := s.guarded(ctx)
		add(b)
		return s.send(ctx, s.general, b)
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		again := s.unpruned.Put(table, lease.Elapsed())
		step.done.SetAside = append(step.done.SetAside, store.SetAside{Kind: "table", Name: table, Again: again, Err: err})
	}
}
