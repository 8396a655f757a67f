package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// unfinishedPerStep is of how many runs one statement reports whether they have
// ended.
const unfinishedPerStep = 10_000

// unfinishedRuns reports which of some runs have not ended.
func (s *Store) unfinishedRuns(ctx context.Context, tx pgx.Tx, ids uuidArray) (map[uuid.UUID]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	unfinished := map[uuid.UUID]bool{}
	b := &batch{names: s.names}
	for some := range slices.Chunk(ids, unfinishedPerStep) {
		b.add(queries.UnfinishedRuns, some).Query(func(rows pgx.Rows) error {
			return scanIDs(rows, func(id uuid.UUID) { unfinished[id] = true })
		})
	}
	return unfinished, s.send(ctx, tx, b)
}

// unfinishedFor is how long it may take to find all unfinished runs of a schedule.
const unfinishedFor = time.Second

// unfinishedOf are the runs of a schedule, whose row is locked so that none can
// be added, that have not ended: of the ones it remembers, those that are known
// to, or all if these do not report whether there is room for another. The
// transaction continues after an error of the server.
func (s *Store) unfinishedOf(
	ctx context.Context, tx pgx.Tx, id int32, remembered []uuid.UUID, known map[uuid.UUID]bool, plan *store.Plan, overlap store.OverlapPolicy,
) (store.Unfinished, error) {
	unfinished := store.ReadUnfinished(remembered)
	unfinished.IDs = slices.DeleteFunc(slices.Clone(unfinished.IDs), func(id uuid.UUID) bool { return !known[id] })
	if !unfinished.Unclear(plan, overlap) {
		return unfinished, nil
	}
	var all []uuid.UUID
	most, _ := limits(ctx, unfinishedFor)
	b := &batch{names: s.names}
	b.add(queries.BeginPart)
	b.add(queries.Limits, most, most) // until the part is undone
	b.add(queries.UnfinishedOfSchedule, id, int32(store.MaxUnfinishedRuns)).Query(func(rows pgx.Rows) error {
		return scanIDs(rows, func(id uuid.UUID) { all = append(all, id) })
	})
	err := s.send(ctx, tx, b)
	if err == nil || code(err) != "" {
		if undone := s.queries(tx).UndoPart(ctx); undone != nil {
			return unfinished, undone
		}
	}
	if err != nil {
		return unfinished, err
	}
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return store.Unfinished{IDs: all, Others: len(all) == store.MaxUnfinishedRuns}, nil
}
