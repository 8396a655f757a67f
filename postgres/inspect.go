package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// The number of runs on a page.
const (
	defaultPage = 50
	largestPage = 200
)

// inspectLimit bounds what a person's question may cost the workers.
const inspectLimit = 10 * time.Second

// Run returns one run with its attempts.
func (s *Store) Run(ctx context.Context, id durable.RunID) (durable.Record, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Record{}, s.fail("run", err)
	}
	record, err := s.run(ctx, s.general, s.guarded(ctx), id)
	if err != nil {
		return durable.Record{}, s.fail("run", err)
	}
	return record, nil
}

// run adds the questions to a batch and sends that to a pool or a transaction.
func (s *Store) run(ctx context.Context, to sender, b *batch, id durable.RunID) (durable.Record, error) {
	var records []durable.Record
	attempts := []durable.Attempt{}
	var checkpoints []string
	reported := map[durable.RunID]*durable.Progress{}
	b.add(queries.Run, id).Query(scanRecords(&records))
	b.add(queries.Attempts, id).Query(func(rows pgx.Rows) error { return scanAttempts(rows, &attempts) })
	b.add(queries.Checkpoint, id).Query(func(rows pgx.Rows) (err error) {
		checkpoints, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	b.add(queries.ProgressOf, uuidArray{id}).Query(scanProgress(reported))
	if err := s.send(ctx, to, b); err != nil {
		return durable.Record{}, err
	}
	if len(records) == 0 {
		return durable.Record{}, fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	record := records[0]
	record.Attempts, record.Progress = attempts, reported[id]
	for _, text := range checkpoints {
		record.Checkpoint = []byte(text)
	}
	if last := len(attempts) - 1; record.State == durable.Succeeded && (last < 0 || attempts[last].Fence != record.Fence) {
		record.Attempts = append(record.Attempts, success(&record))
	}
	return record, nil
}

// success is the attempt that the run itself tells of.
func success(r *durable.Record) durable.Attempt {
	a := durable.Attempt{Number: r.Attempt, Outcome: durable.Success, Fence: r.Fence}
	if r.Worker != nil {
		a.Worker = *r.Worker
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		a.StartedAt, a.EndedAt = *r.StartedAt, *r.FinishedAt
	}
	return a
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, filter durable.Filter) (durable.Page, error) {
	if err := checkLimit(&filter); err != nil {
		return durable.Page{}, err
	}
	if len(filter.IDs) > largestPage {
		return durable.Page{}, fmt.Errorf("%w: %d ids: want at most %d", durable.ErrInvalid, len(filter.IDs), largestPage)
	}
	if err := s.usable(ctx); err != nil {
		return durable.Page{}, s.fail("runs", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	page, err := s.page(ctx, s.general, s.guarded(ctx), filter)
	if err != nil {
		return durable.Page{}, s.fail("runs", err)
	}
	return page, nil
}

// checkLimit refuses a page that is too large, and sets one that is not given.
func checkLimit(filter *durable.Filter) error {
	if filter.Limit == 0 {
		filter.Limit = defaultPage
	}
	if filter.Limit < 1 || filter.Limit > largestPage {
		return fmt.Errorf("%w: limit %d: want 1 to %d", durable.ErrInvalid, filter.Limit, largestPage)
	}
	return nil
}

// page adds the question to a batch and sends that to a pool or a transaction.
func (s *Store) page(ctx context.Context, to sender, b *batch, filter durable.Filter) (durable.Page, error) {
	before := filter.Before
	if before == (durable.RunID{}) {
		before = uuid.Max
	}
	states := make([]int16, len(filter.States))
	for i, state := range filter.States {
		states[i] = int16(state)
	}
	var page durable.Page
	args := []any{before, len(states) == 0, states, len(filter.Jobs)+len(filter.Queues) == 0,
		orEmpty(filter.Jobs), orEmpty(filter.Queues), int32(filter.Limit + 1)} //nolint:gosec // small
	if len(filter.IDs) > 0 {
		b.add(queries.ListChosen, append([]any{uuidArray(filter.IDs)}, args...)...).Query(scanRecords(&page.Runs))
	} else {
		b.add(listOf(filter.States), args...).Query(scanRecords(&page.Runs))
	}
	if err := s.send(ctx, to, b); err != nil {
		return durable.Page{}, err
	}
	if len(page.Runs) > filter.Limit {
		page.Runs = page.Runs[:filter.Limit]
		page.Next = page.Runs[filter.Limit-1].ID
	}
	return page, s.addProgress(ctx, to, page.Runs)
}

// listOf picks the statement that finds runs of the states most quickly.
func listOf(states []durable.State) string {
	problem := func(state durable.State) bool { return state == durable.Dead || state == durable.Cancelled }
	switch {
	case len(states) == 1 && states[0] == durable.Running:
		return queries.ListRunning
	case len(states) > 0 && !slices.ContainsFunc(states, func(state durable.State) bool { return !problem(state) }):
		return queries.ListProblems
	default:
		return queries.ListRuns
	}
}

// Counts returns the number of runs in each state.
func (s *Store) Counts(ctx context.Context) (map[durable.State]int64, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("counts", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	rows, err := s.queries(s.general).CountRuns(ctx)
	if err != nil {
		return nil, s.fail("counts", err)
	}
	counts := make(map[durable.State]int64)
	for _, state := range durable.States() {
		counts[state] = 0
	}
	for _, row := range rows {
		counts[durable.State(row.State)] = row.Number
	}
	return counts, nil
}

// scanRecords reads the columns that Run, ListRuns and ListProblems share.
func scanRecords(records *[]durable.Record) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.RunRow])
		for i := range found {
			*records = append(*records, toRecord(&found[i]))
		}
		return err
	}
}

func toRecord(row *queries.RunRow) durable.Record {
	r := durable.Record{
		ID: row.ID, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), State: durable.State(row.State),
		Attempt: int(row.Attempt), MaxAttempts: int(row.MaxAttempts), CrashCount: int(row.CrashCount), Isolated: row.Isolated,
		DueAt: row.DueAt.UTC(), CreatedAt: row.CreatedAt.UTC(), StartedAt: timesUTC(row.StartedAt),
		FinishedAt: timesUTC(row.FinishedAt), ExpiresAt: timesUTC(row.ExpiresAt),
		Timeout: durable.Duration(fromMicro(row.Timeout)), Worker: textOrNil(row.Worker), Fence: lease.Fence(row.Fence),
		Schedule: textOrNil(row.Schedule), Key: textOrNil(row.Key), Tags: orEmpty(row.Tags), Args: []byte(row.Args), Error: textOrNil(row.Error),
	}
	if row.Result != "" {
		r.Result = bytes.Clone([]byte(row.Result))
	}
	return r
}

func scanAttempts(rows pgx.Rows, attempts *[]durable.Attempt) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.AttemptsRow])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	for _, row := range found {
		*attempts = append(*attempts, durable.Attempt{
			Number: int(row.Number), Outcome: durable.OutcomeKind(row.Outcome), Worker: row.Worker, Fence: lease.Fence(row.Fence),
			StartedAt: row.StartedAt.UTC(), EndedAt: row.EndedAt.UTC(), Error: row.Error, Stack: row.Stack, Log: row.Log,
		})
	}
	return nil
}
