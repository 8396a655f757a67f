package timetable

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// unfinishedPerStep is of how many runs one statement reports whether they have
// ended.
const unfinishedPerStep = 10_000

// unfinishedRuns reports which of some runs have not ended.
func (t *Timetable) unfinishedRuns(ctx context.Context, tx pgx.Tx, ids conn.UUIDs) (map[uuid.UUID]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	unfinished := map[uuid.UUID]bool{}
	b := t.db.NewBatch()
	for some := range slices.Chunk(ids, unfinishedPerStep) {
		b.Add(queries.UnfinishedRuns, some).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(id uuid.UUID) { unfinished[id] = true })
		})
	}
	return unfinished, t.db.Send(ctx, tx, b)
}

// unfinishedFor is how long it may take to find all unfinished runs of a schedule.
const unfinishedFor = time.Second

// unfinishedOf are the runs of a schedule, whose row is locked so that none can
// be added, that have not ended: of the ones it remembers, those that are known
// to, or all if these do not report whether there is room for another. The
// transaction continues after an error of the server.
func (t *Timetable) unfinishedOf(
	ctx context.Context, tx pgx.Tx, id int32, remembered []uuid.UUID, known map[uuid.UUID]bool, plan *store.Plan, overlap store.OverlapPolicy,
) (store.Unfinished, error) {
	unfinished := store.ReadUnfinished(remembered)
	unfinished.IDs = slices.DeleteFunc(slices.Clone(unfinished.IDs), func(id uuid.UUID) bool { return !known[id] })
	if !unfinished.Unclear(plan, overlap) {
		return unfinished, nil
	}
	var all []uuid.UUID
	most, _ := conn.Limits(ctx, unfinishedFor)
	b := t.db.NewBatch()
	b.Add(queries.BeginPart)
	b.Add(queries.Limits, most, most) // until the part is undone
	b.Add(queries.UnfinishedOfSchedule, id, int32(store.MaxUnfinishedRuns)).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { all = append(all, id) })
	})
	err := t.db.Send(ctx, tx, b)
	if err == nil || conn.Code(err) != "" {
		if undone := t.db.Queries(tx).UndoPart(ctx); undone != nil {
			return unfinished, undone
		}
	}
	if err != nil {
		return unfinished, err
	}
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return store.Unfinished{IDs: all, Others: len(all) == store.MaxUnfinishedRuns}, nil
}

// specs remembers rules and plans by the texts they were read from.
type specs struct {
	mu   sync.Mutex
	read map[string]store.Schedule // nothing but what the text has
}

// specsMost bounds the texts that are remembered.
const specsMost = 10_000

// schedule reads a row. One whose text cannot be read is returned without what it says.
func (s *specs) schedule(row *queries.DueSchedulesRow) (store.Schedule, error) {
	one := store.Schedule{
		Name: row.Name, Hash: row.Hash, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority),
		Args: []byte(row.Args), MaxAttempts: int(row.MaxAttempts), Timeout: conn.FromMicro(row.Timeout),
		OnCrash: store.CrashPolicy(row.OnCrash), Tags: row.Tags, Limits: numbers.UsesOf(row.Limits), Waiting: conn.FromMicro(row.Waiting),
	}
	s.mu.Lock()
	known, remembered := s.read[row.Spec]
	s.mu.Unlock()
	var err error
	if remembered {
		one.Rule, one.Plan, one.Metadata = known.Rule, known.Plan, known.Metadata
	} else if err = one.SetSpec([]byte(row.Spec)); err == nil {
		s.remember(row.Spec, store.Schedule{Rule: one.Rule, Plan: one.Plan, Metadata: one.Metadata})
	}
	if (one.Waiting > 0 || row.NextAt == nil) && row.LookAt.Unix() != 0 {
		one.EvaluateAt = row.LookAt.UTC()
	}
	if row.NextAt != nil {
		one.NextAt = row.NextAt.UTC()
	}
	return one, err
}

func (s *specs) remember(text string, read store.Schedule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil || len(s.read) >= specsMost {
		s.read = map[string]store.Schedule{}
	}
	s.read[text] = read
}
