package reading

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// inspectLimit bounds how long a person waits for an answer. The server cancels the query a
// second later.
const inspectLimit = 4 * time.Second

// Run returns one run with its attempts. It uses the general pool, because workers and callers
// that wait for runs call it too.
func (r *Reader) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return store.Record{}, r.db.Fail("run", err)
	}
	record, err := r.RunFrom(ctx, r.db.General, id)
	if err != nil {
		return store.Record{}, r.db.Fail("run "+id.String(), err)
	}
	return record, nil
}

// RunFrom reads a run as a pool or a transaction sees it.
func (r *Reader) RunFrom(ctx context.Context, to conn.Sender, id store.RunID) (store.Record, error) {
	b := r.db.Begin(ctx, to)
	var records []store.Record
	attempts := []store.Attempt{}
	var checkpoints []string
	reported := map[store.RunID]*store.Progress{}
	b.Add(queries.Run, id).Query(scanRecords(&records))
	b.Add(queries.Attempts, id).Query(func(rows pgx.Rows) error { return scanAttempts(rows, &attempts) })
	b.Add(queries.Checkpoint, id).Query(func(rows pgx.Rows) (err error) {
		checkpoints, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	b.Add(queries.ProgressOf, conn.UUIDs{id}).Query(scanProgress(reported))
	if err := r.db.Send(ctx, to, b); err != nil {
		return store.Record{}, err
	}
	if len(records) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	record := records[0]
	record.Attempts, record.Progress = withSuccess(&record, attempts), reported[id]
	for _, text := range checkpoints {
		record.Checkpoint = []byte(text)
	}
	return record, nil
}

// withSuccess adds the success of a run to its recorded attempts, where it is not among them.
func withSuccess(r *store.Record, attempts []store.Attempt) []store.Attempt {
	if last := len(attempts) - 1; r.State == store.Succeeded && (last < 0 || attempts[last].Fence != r.Fence) {
		attempts = append(attempts, success(r))
	}
	return attempts
}

// success is the attempt that the run itself reports.
func success(r *store.Record) store.Attempt {
	a := store.Attempt{Number: r.Attempt, Outcome: store.Success, Fence: r.Fence}
	if r.Worker != nil {
		a.Worker = *r.Worker
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		a.StartedAt, a.EndedAt = *r.StartedAt, *r.FinishedAt
	}
	return a
}

// scanRecords reads the columns that Run, ListRuns and ListThese share.
func scanRecords(records *[]store.Record) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.RunRow])
		for i := range found {
			*records = append(*records, toRecord(&found[i]))
		}
		return err
	}
}

func toRecord(row *queries.RunRow) store.Record {
	r := store.Record{
		ID: row.ID, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), State: store.State(row.State),
		Attempt: int(row.Attempt), MaxAttempts: int(row.MaxAttempts), CrashCount: int(row.CrashCount), Isolated: row.Isolated,
		DueAt: row.DueAt.UTC(), CreatedAt: row.CreatedAt.UTC(), StartedAt: conn.TimesUTC(row.StartedAt),
		FinishedAt: conn.TimesUTC(row.FinishedAt), ExpiresAt: conn.TimesUTC(row.ExpiresAt),
		Timeout: store.Duration(conn.FromMicro(row.Timeout)), Worker: rules.TextOrNil(row.Worker), Fence: lease.Fence(row.Fence),
		Schedule: rules.TextOrNil(row.Schedule), Occurrence: store.ZonedTime(row.OccursAt).Fixed(), Key: rules.TextOrNil(row.Key), Tags: conn.OrEmpty(row.Tags), Args: []byte(row.Args), Error: rules.TextOrNil(row.Error),
	}
	if len(row.Limits) > 0 {
		r.Limits = row.Limits
	}
	r.Metadata = store.MetadataOf([]byte(row.Metadata))
	if row.Result != "" {
		r.Result = bytes.Clone([]byte(row.Result))
	}
	return r
}

func scanAttempts(rows pgx.Rows, attempts *[]store.Attempt) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.AttemptsRow])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	for _, row := range found {
		*attempts = append(*attempts, store.Attempt{
			Number: int(row.Number), Outcome: store.OutcomeKind(row.Outcome), Worker: row.Worker, Fence: lease.Fence(row.Fence),
			StartedAt: row.StartedAt.UTC(), EndedAt: row.EndedAt.UTC(), Error: row.Error, Stack: row.Stack, Log: row.Log,
		})
	}
	return nil
}

// addProgress completes records, some of whose runs may have reported progress, with another
// question to where they came from.
func (r *Reader) addProgress(ctx context.Context, to conn.Sender, records []store.Record) error {
	var ids conn.UUIDs
	for i := range records {
		if records[i].StartedAt != nil {
			ids = append(ids, records[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	reported := map[store.RunID]*store.Progress{}
	b := r.db.Begin(ctx, to)
	b.Add(queries.ProgressOf, ids).Query(scanProgress(reported))
	if err := r.db.Send(ctx, to, b); err != nil {
		return err
	}
	for i := range records {
		records[i].Progress = reported[records[i].ID]
	}
	return nil
}

// scanProgress reads rows of ProgressOf.
func scanProgress(found map[store.RunID]*store.Progress) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var p store.Progress
			if err := rows.Scan(&id, &p.Fraction, &p.Note, &p.At); err != nil {
				return err
			}
			p.Fraction, p.At = math.Round(p.Fraction*1e4)/1e4, p.At.UTC()
			found[id] = &p
		}
		return rows.Err()
	}
}

// inspect asks what an operator wants to know.
func (r *Reader) inspect(ctx context.Context, ask func(*conn.Batch)) error {
	if err := r.schema.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	b := r.db.Guarded(ctx)
	ask(b)
	return r.db.Send(ctx, r.db.Reading, b)
}
