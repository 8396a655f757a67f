package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Run returns one run with its attempts.
func (s *Store) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	record, err := s.run(ctx, id)
	if err != nil {
		return store.Record{}, fmt.Errorf("run %s: %w", id, s.explain(err))
	}
	return record, nil
}

// run reads the run and its attempts in one snapshot.
func (s *Store) run(ctx context.Context, id store.RunID) (store.Record, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return store.Record{}, err
	}
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return store.Record{}, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	return findRun(ctx, reader.WithTx(tx), id)
}

// findRun reads the run and its attempts in a transaction.
func findRun(ctx context.Context, snapshot *queries.Queries, id store.RunID) (store.Record, error) {
	row, err := snapshot.FindRun(ctx, queries.FindRunParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Record{}, err
	}
	attempts, err := snapshot.ListAttempts(ctx, queries.ListAttemptsParams{RunID: id[:]})
	if err != nil {
		return store.Record{}, err
	}
	record, err := recordOf((*listed)(&row))
	record.Attempts = history(&row.Run, attempts)
	if err == nil {
		record.Progress, err = progressOf(ctx, snapshot, id)
	}
	if err == nil {
		record.Checkpoint, err = snapshot.FindCheckpoint(ctx, queries.FindCheckpointParams{RunID: id[:]})
		err = unlessNone(err)
	}
	return record, err
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if _, _, _, err := filter.Range(); err != nil {
		return store.Page{}, err
	}
	reader, err := s.read(ctx)
	var page store.Page
	if err == nil {
		page, err = findRuns(ctx, reader.Queries, s.clock.now(), filter)
	}
	if err != nil {
		return store.Page{}, fmt.Errorf("runs: %w", s.explain(err))
	}
	return page, nil
}

// listed is a row of either list, and of one run.
type listed queries.ListRunsRow

// pageMost bounds the runs that are examined for one page.
const pageMost = 20_000

// findRuns reads one page.
func findRuns(ctx context.Context, reader *queries.Queries, now int64, filter store.Filter) (store.Page, error) {
	from, below, limit, err := filter.Range()
	if err != nil {
		return store.Page{}, err
	}
	ask := queries.ListRunsParams{
		Below: below[:], FromID: from[:], States: list(numbers(filter.States)), Jobs: list(filter.Jobs), Queues: list(filter.Queues),
		Tag: filter.Tag, Chosen: choiceOf(&filter), Most: int64(limit) + 1,
	}
	floor, err := floorOf(ctx, reader, filter, ask)
	if err == nil && len(filter.IDs) == 0 && filter.Named() {
		filter.IDs, floor, err = named(ctx, reader, now, &filter)
	}
	if err != nil || filter.IDs != nil && len(filter.IDs) == 0 {
		return store.Page{}, err
	}
	if floor != nil {
		ask.FromID = floor
	}
	rows, err := listRows(ctx, reader, filter, ask)
	if err != nil {
		return store.Page{}, err
	}
	var page store.Page
	if floor != nil {
		page.Next, page.Examined = store.RunID(floor), pageMost // there may be more below it
	}
	for i := range rows {
		if i == limit {
			page.Next, page.Examined = page.Runs[i-1].ID, 0
			break
		}
		record, err := recordOf(&rows[i])
		if err != nil {
			return store.Page{}, err
		}
		page.Runs = append(page.Runs, record)
	}
	return page, addProgress(ctx, reader, page.Runs)
}

// named are the newest runs of the key, of the schedule, of the batch, or with the link, that is asked
// for, and the smallest id that is examined, if not all are.
func named(ctx context.Context, reader *queries.Queries, now int64, filter *store.Filter) (ids []store.RunID, floor []byte, err error) {
	ids, err = idsOfName(ctx, reader, now, filter, pageMost)
	if len(ids) == pageMost {
		floor = ids[pageMost-1][:]
	}
	return ids, floor, err
}

func idsOfName(ctx context.Context, reader *queries.Queries, now int64, filter *store.Filter, most int64) ([]store.RunID, error) {
	from, below, _, err := filter.Range()
	if err != nil {
		return nil, err
	}
	var found [][]byte
	switch {
	case filter.Parent != store.RunID{}:
		found, err = reader.ChildrenOf(ctx, queries.ChildrenOfParams{Parent: filter.Parent[:], Below: below[:], FromID: from[:], Most: most})
	case filter.WaitingOn != store.RunID{}:
		found, err = reader.DependentsOf(ctx, queries.DependentsOfParams{Source: filter.WaitingOn[:], Below: below[:], FromID: from[:], Now: now, Most: most})
	case filter.Batch != store.BatchID{}:
		found, err = reader.RunsOfBatch(ctx, queries.RunsOfBatchParams{Batch: filter.Batch[:], Below: below[:], FromID: from[:], Most: most})
	case filter.Key != "":
		found, err = reader.RunsOfKey(ctx, queries.RunsOfKeyParams{Key: &filter.Key, Below: below[:], FromID: from[:], Most: most})
	default:
		found, err = reader.RunsOfSchedule(ctx, queries.RunsOfScheduleParams{Schedule: &filter.Schedule, Below: below[:], FromID: from[:], Most: most})
	}
	ids := make([]store.RunID, len(found))
	for i := range found {
		ids[i] = store.RunID(found[i])
	}
	return ids, err
}

// choiceOf is what a filter asks for beside the place of a run, as statements read it;
// empty: nothing.
func choiceOf(filter *store.Filter) string {
	if !filter.Selects() {
		return ""
	}
	choice := map[string]any{}
	if len(filter.Metadata) > 0 {
		choice["metadata"] = filter.Metadata
	}
	for name, text := range map[string]string{"key": filter.Key, "schedule": filter.Schedule, "worker": filter.Worker, "error": filter.Error} {
		if text != "" {
			choice[name] = text
		}
	}
	if filter.Args != "" {
		choice["args"] = filter.ArgsSpellings()
	}
	if !filter.EndedSince.IsZero() {
		choice["ended_since"] = filter.EndedSince.UnixMicro()
	}
	text, _ := json.Marshal(choice) // texts and numbers always have a form
	return string(text)
}

// floorOf is the smallest id that is examined; nil: all are.
func floorOf(ctx context.Context, reader *queries.Queries, filter store.Filter, ask queries.ListRunsParams) (floor []byte, err error) {
	switch {
	case filter.Named():
	case onlyProblems(filter.States):
		floor, err = reader.FloorOfProblems(ctx, queries.FloorOfProblemsParams{Below: ask.Below, FromID: ask.FromID, Skip: pageMost - 1})
	default:
		floor, err = reader.FloorOfRuns(ctx, queries.FloorOfRunsParams{Below: ask.Below, FromID: ask.FromID, Skip: pageMost - 1})
	}
	return floor, unlessNone(err)
}

// listRows asks the statement that finds the runs most quickly.
func listRows(ctx context.Context, reader *queries.Queries, filter store.Filter, ask queries.ListRunsParams) (rows []listed, err error) {
	if len(filter.IDs) > 0 {
		return chosen(ctx, reader, filter.IDs, ask)
	}
	if onlyProblems(filter.States) {
		found, err := reader.ListProblems(ctx, queries.ListProblemsParams(ask))
		for i := range found {
			rows = append(rows, listedProblem(&found[i]))
		}
		return rows, err
	}
	found, err := reader.ListRuns(ctx, ask)
	for i := range found {
		rows = append(rows, listed(found[i]))
	}
	return rows, err
}

// numbers are the states as they are stored.
func numbers(states []store.State) []int16 {
	stored := make([]int16, len(states))
	for i, state := range states {
		stored[i] = int16(state)
	}
	return stored
}

// onlyProblems reports whether problems holds all that is asked for.
func onlyProblems(states []store.State) bool {
	for _, state := range states {
		if state != store.Dead && state != store.Cancelled {
			return false
		}
	}
	return len(states) > 0
}

func listedProblem(row *queries.ListProblemsRow) listed {
	return listed{Run: row.Run, Queue: row.Queue, Job: row.Job, Priority: row.Priority, Reason: &row.Reason, LastError: row.LastError}
}

// recordOf makes the record of a run, without its attempts.
func recordOf(row *listed) (store.Record, error) {
	r := &row.Run
	tags, err := tagsOf(r.Tags)
	record := store.Record{
		ID:          store.RunID(r.ID),
		Job:         row.Job,
		Queue:       row.Queue,
		State:       store.State(r.State),
		Attempt:     int(r.Attempt),
		MaxAttempts: int(r.MaxAttempts),
		CrashCount:  int(r.CrashCount),
		Isolated:    r.Lane < 0,
		Priority:    int(row.Priority),
		DueAt:       instant(r.DueAt),
		CreatedAt:   instant(r.CreatedAt),
		StartedAt:   instantOrNil(r.StartedAt),
		FinishedAt:  instantOrNil(r.FinishedAt),
		ExpiresAt:   instantOrNil(r.ExpiresAt),
		Timeout:     store.Duration(duration(r.Timeout)),
		Worker:      r.Worker,
		Fence:       lease.Fence(r.Fence),
		Schedule:    r.Schedule,
		Occurrence:  occurrenceOf(r.OccursAt),
		Key:         r.Key,
		Tags:        tags,
		Metadata:    metadataOf(r.Metadata),
		Args:        r.Args,
		Result:      r.Result,
	}
	switch {
	case row.Reason != nil && *row.Reason != "":
		record.Error = row.Reason
	case record.State != store.Succeeded:
		record.Error = rules.TextOrNil(row.LastError)
	}
	if err == nil {
		record.Limits, err = limitTextsOf(r.Limits)
	}
	return record, err
}

// occurrenceOf reads the occurrence of a run; none, and what cannot be read, is nil.
func occurrenceOf(text *string) *time.Time {
	if text == nil {
		return nil
	}
	return store.ZonedTime(*text).Fixed()
}

// history lists the recorded attempts; a success is in the run itself.
func history(run *queries.Run, rows []queries.ListAttemptsRow) []store.Attempt {
	attempts := make([]store.Attempt, 0, len(rows)+1)
	for _, row := range rows {
		attempts = append(attempts, store.Attempt{
			Number: int(row.Number), Outcome: store.OutcomeKind(row.Outcome), Worker: row.Worker, Fence: lease.Fence(row.Fence),
			StartedAt: instant(row.StartedAt), EndedAt: instant(row.EndedAt), Error: row.Error, Stack: row.Stack, Log: row.Log,
		})
	}
	last := len(rows) - 1
	if store.State(run.State) != store.Succeeded || last >= 0 && rows[last].Fence == run.Fence {
		return attempts
	}
	success := store.Attempt{Number: int(run.Attempt), Outcome: store.Success, Fence: lease.Fence(run.Fence)}
	if run.Worker != nil {
		success.Worker = *run.Worker
	}
	if run.StartedAt != nil && run.FinishedAt != nil {
		success.StartedAt, success.EndedAt = instant(*run.StartedAt), instant(*run.FinishedAt)
	}
	return append(attempts, success)
}
