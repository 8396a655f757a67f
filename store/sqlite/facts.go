package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// aheadOfOthers bounds the runs counted of a lane that is not the run's own.
const aheadOfOthers = 1000

// Facts returns what decides about one run.
func (s *Store) Facts(ctx context.Context, id store.RunID) (store.Facts, error) {
	facts, err := s.facts(ctx, id)
	if err != nil {
		return store.Facts{}, fmt.Errorf("facts: %w", s.explain(err))
	}
	return facts, nil
}

// gathering is the reading of facts, in one snapshot.
type gathering struct {
	*queries.Queries

	now   int64
	facts *store.Facts
}

func (s *Store) facts(ctx context.Context, id store.RunID) (facts store.Facts, err error) {
	reader, err := s.read(ctx)
	if err != nil {
		return facts, err
	}
	workers, err := s.listWorkers(ctx)
	if err != nil {
		return facts, err
	}
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return facts, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	now := s.clock.now()
	facts = store.Facts{At: instant(now), ID: id, Workers: rules.LatestWorkers(workers, store.FactsWorkers)}
	g := gathering{reader.WithTx(tx), now, &facts}
	return facts, g.all(ctx)
}

func (g *gathering) all(ctx context.Context) (err error) {
	id := g.facts.ID
	if g.facts.Changes, err = g.changes(ctx, store.ChangeFilter{Kind: rules.KindRun, Subject: id.String()}, store.FactsChanges); err != nil {
		return err
	}
	record, err := findRun(ctx, g.Queries, id)
	if errors.Is(err, store.ErrNotFound) {
		g.facts.BulkDeletes, err = g.changes(ctx, store.ChangeFilter{Kind: rules.KindBulk, Action: string(store.DeleteRuns), Since: rules.DeletedSince(id)}, rules.BulkDeletesShown)
		return err
	}
	if err != nil {
		return err
	}
	record.Attempts = record.Attempts[max(len(record.Attempts)-1, 0):]
	g.facts.Run = &record
	if err := g.declared(ctx, record.Job); err != nil {
		return err
	}
	if err := g.paused(ctx, record.Queue); err != nil {
		return err
	}
	switch {
	case record.State == store.Pending && (len(record.Limits) > 0 || record.DueAt.After(g.facts.At)):
		return g.gates(ctx)
	case record.State == store.Pending:
		return errors.Join(g.gates(ctx), g.lanes(ctx))
	case record.State == store.Running:
		return g.lease(ctx)
	case record.State != store.Succeeded && record.Key != nil:
		return g.key(ctx)
	}
	return nil
}

func (g *gathering) changes(ctx context.Context, filter store.ChangeFilter, most int) ([]store.Change, error) {
	page, err := (&lookups{Queries: g.Queries}).changes(ctx, &filter, most)
	return page.Changes, err
}

func (g *gathering) declared(ctx context.Context, name string) error {
	jobs, err := readJobs(ctx, g.Queries)
	g.facts.Declared = rules.JobOf(jobs, name)
	return err
}

func (g *gathering) paused(ctx context.Context, queue string) error {
	paused, err := g.FindQueue(ctx, queries.FindQueueParams{Name: queue})
	if unlessNone(err) != nil || paused == 0 {
		return unlessNone(err)
	}
	last, err := g.changes(ctx, store.ChangeFilter{Kind: rules.KindQueue, Subject: queue, Action: string(store.PauseQueue)}, 1)
	g.facts.Paused = rules.PauseOf(last)
	return err
}

// gates are the limits of a run that waits, with its keys.
func (g *gathering) gates(ctx context.Context) error {
	uses, err := store.ParseLimitTexts(g.facts.Run.Limits)
	if err != nil {
		return err
	}
	known, err := readLimits(ctx, g.Queries)
	if err != nil {
		return err
	}
	uses = rules.UnderCap(uses, g.facts.Run.Queue, known.find(store.QueueCap(g.facts.Run.Queue)))
	for _, use := range uses {
		limit := known.find(store.LimitName(use.Limit))
		if limit == nil {
			continue
		}
		keys := []string{use.Key}
		if limit.Kind == store.LimitDynamicWindow && use.Key != "" {
			keys = append(keys, "") // what all keys share
		}
		for _, key := range keys {
			info, err := gateInfo(ctx, g.Queries, limit, key, g.now)
			if err != nil {
				return err
			}
			g.facts.Gates = append(g.facts.Gates, store.GateFacts{Use: use, GateInfo: info})
		}
	}
	return nil
}

// lanes counts what is claimed before a run that is due.
func (g *gathering) lanes(ctx context.Context) error {
	run := g.facts.Run
	lane, err := g.FindLaneOfRun(ctx, queries.FindLaneOfRunParams{ID: run.ID[:]})
	if err != nil {
		return err
	}
	rows, err := g.ListNearLanes(ctx, queries.ListNearLanesParams{Queue: run.Queue, Job: run.Job, Priority: int64(run.Priority), Most: store.FactsLanes + 1})
	if err != nil {
		return err
	}
	g.facts.More = len(rows) > store.FactsLanes
	for i := range rows[:min(len(rows), store.FactsLanes)] {
		row := &rows[i]
		ask := queries.CountAheadParams{Lane: row.ID, ToDue: run.DueAt.UnixMicro(), ToID: run.ID[:], Most: aheadOfOthers}
		switch {
		case run.Isolated && row.ID != -lane.Lane:
			continue
		case run.Isolated:
			ask.Lane = lane.Lane
		}
		if row.Own != 0 {
			ask.Most = store.FactsAhead
		}
		if row.Priority > int64(run.Priority) {
			ask.ToDue, ask.ToID = g.now, uuid.Max[:]
		}
		ahead, err := g.CountAhead(ctx, ask)
		if err != nil {
			return err
		}
		ended, err := g.ended(ctx, row.Queue, row.Job)
		if err != nil {
			return err
		}
		g.facts.Lanes = append(g.facts.Lanes, store.LaneFacts{Queue: row.Queue, Job: row.Job, Priority: int(row.Priority), Ended: ended,
			Ahead: store.Count{N: ahead, AtLeast: ahead >= ask.Most}})
	}
	return nil
}

// ended counts the attempts of a job on a queue that have ended lately.
func (g *gathering) ended(ctx context.Context, queue, job string) (ended int64, err error) {
	texts, err := g.ListLaneStats(ctx, queries.ListLaneStatsParams{Span: int64(store.Minute), Queue: queue, Job: job, Since: g.now - rules.Lately.Microseconds()})
	for _, text := range texts {
		var tally store.Tally
		if err := json.Unmarshal([]byte(text), &tally); err != nil {
			return 0, err
		}
		ended += tally.Ended()
	}
	return ended, err
}

// lease reads the lease of a run that executes.
func (g *gathering) lease(ctx context.Context) (err error) {
	id := g.facts.ID
	if g.facts.CancelReason, err = g.FindCancel(ctx, queries.FindCancelParams{ID: id[:]}); unlessNone(err) != nil {
		return err
	}
	row, err := g.FindLeaseOfRun(ctx, queries.FindLeaseOfRunParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	instance, err := uuid.FromBytes(row.WorkerInstance)
	g.facts.Lease = &store.LeaseFacts{Worker: row.WorkerName, Instance: instance, AcquiredAt: instant(row.AcquiredAt), ExpiresAt: instant(max(row.ExpiresAt, -row.ExpiresAt))}
	return err
}

// key finds the run that holds the unique key of an ended run.
func (g *gathering) key(ctx context.Context) error {
	run := g.facts.Run
	holder, err := g.FindKeyHolder(ctx, queries.FindKeyHolderParams{Job: run.Job, Key: *run.Key})
	if unlessNone(err) != nil || err != nil || store.RunID(holder.RunID) == run.ID {
		return unlessNone(err)
	}
	if !rules.RegainsKey(keyHolderOf(&holder, g.now)) {
		id := store.RunID(holder.RunID)
		g.facts.KeyHolder = &id
	}
	return nil
}

// problemsExamined bounds the ended runs among which the dead ones are looked for.
const problemsExamined = 20_000

// Problems lists the dead runs that ended last.
func (s *Store) Problems(ctx context.Context, filter store.ProblemFilter) ([]store.Problem, error) {
	most, err := filter.Most()
	if err != nil {
		return nil, err
	}
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("problems: %w", s.explain(err))
	}
	ask := queries.ListDeadParams{Since: math.MinInt64, Examined: problemsExamined, Jobs: list(filter.Jobs), Queues: list(filter.Queues), Most: int64(most)}
	if !filter.Since.IsZero() {
		ask.Since = filter.Since.UnixMicro()
	}
	if filter.Scope == store.OpenProblems {
		ask.Open = 1
	}
	rows, err := reader.ListDead(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("problems: %w", s.explain(err))
	}
	problems := make([]store.Problem, len(rows))
	for i, row := range rows {
		problems[i] = store.Problem{Run: store.RunID(row.RunID), Job: row.Job, Queue: row.Queue, EndedAt: instant(row.EndedAt),
			Reason: rules.ProblemReason(row.Reason), AcknowledgedAt: instantOrNil(row.AcknowledgedAt)}
		if row.AcknowledgedBy != nil {
			problems[i].AcknowledgedBy = *row.AcknowledgedBy
		}
	}
	return problems, nil
}
