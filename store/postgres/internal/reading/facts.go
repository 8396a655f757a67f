package reading

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// aheadOfOthers bounds the runs counted of a lane that is not the run's own.
	aheadOfOthers = 1000
	// changesExamined bounds the changes among which deletions by a filter are looked for.
	changesExamined = 5000
)

// factRows are the answers that Facts puts together.
type factRows struct {
	now      time.Time
	records  []store.Record
	attempts []store.Attempt
	progress map[store.RunID]*store.Progress
	changes  []queries.ChangesRow
	bulk     []queries.BulkDeletesRow
	jobs     []queries.JobsRow
	workers  []queries.WorkersRow
	pauses   []queries.PauseOfRunRow
	lanes    []queries.LanesBeforeRow
	holders  []queries.HolderOfRowRow
	leases   []queries.LeaseOfRunRow
	keys     []queries.KeyHolderOfRow
}

// Facts returns what decides about one run, in one round trip. A run that waits needs one more
// for its limits and the cap of its queue, and one for their keys.
func (r *Reader) Facts(ctx context.Context, id store.RunID) (store.Facts, error) {
	var rows factRows
	if err := r.inspect(ctx, func(b *conn.Batch) { rows.ask(b, id) }); err != nil {
		return store.Facts{}, r.db.Fail("facts", err)
	}
	facts, err := rows.facts(id)
	if err == nil && facts.Run != nil && facts.Run.State == store.Pending {
		facts.Gates, err = r.gatesOf(ctx, facts.Run)
	}
	if err != nil {
		return store.Facts{}, r.db.Fail("facts", err)
	}
	return facts, nil
}

func (r *factRows) ask(b *conn.Batch, id store.RunID) {
	r.progress = map[store.RunID]*store.Progress{}
	b.Add(queries.SurveyedAt).QueryRow(func(row pgx.Row) error { return row.Scan(&r.now) })
	b.Add(queries.Run, id).Query(func(rows pgx.Rows) error {
		r.records = nil
		return scanRecords(&r.records)(rows)
	})
	b.Add(queries.LastAttempt, id).Query(func(rows pgx.Rows) error {
		r.attempts = []store.Attempt{}
		return scanAttempts(rows, &r.attempts)
	})
	b.Add(queries.ProgressOf, conn.UUIDs{id}).Query(scanProgress(r.progress))
	b.Add(queries.ChangesOf, int64(1<<62), int64(0), rules.KindRun, id.String(), "", "", time.Unix(0, 0), int32(store.FactsChanges)).Query(conn.Collect(&r.changes))
	b.Add(queries.BulkDeletes, int32(changesExamined), rules.DeletedSince(id), id, int32(rules.BulkDeletesShown)).Query(conn.Collect(&r.bulk))
	b.Add(queries.Jobs).Query(conn.Collect(&r.jobs))
	b.Add(queries.Workers, conn.Micro(store.ListedFor), int32(store.FactsWorkers)).Query(conn.Collect(&r.workers))
	b.Add(queries.PauseOfRun, id).Query(conn.Collect(&r.pauses))
	b.Add(queries.LanesBefore, int32(store.FactsAhead), int32(aheadOfOthers), conn.Micro(rules.Lately), id, int32(store.FactsLanes+1)).Query(conn.Collect(&r.lanes))
	b.Add(queries.HolderOfRow, id).Query(conn.Collect(&r.holders))
	b.Add(queries.LeaseOfRun, id).Query(conn.Collect(&r.leases))
	b.Add(queries.KeyHolderOf, id).Query(conn.Collect(&r.keys))
}

// facts puts the answers together.
func (r *factRows) facts(id store.RunID) (store.Facts, error) {
	facts := store.Facts{At: r.now.UTC(), ID: id}
	for _, row := range r.changes {
		facts.Changes = append(facts.Changes, toChange(&row))
	}
	for _, row := range r.bulk {
		facts.BulkDeletes = append(facts.BulkDeletes, toChange((*queries.ChangesRow)(&row)))
	}
	var err error
	if facts.Workers, err = toWorkers(r.workers); err != nil || len(r.records) == 0 {
		return facts, err
	}
	record := r.records[0]
	record.Attempts, record.Progress = withSuccess(&record, r.attempts), r.progress[id]
	record.Attempts = record.Attempts[max(len(record.Attempts)-1, 0):]
	facts.Run = &record
	facts.Declared = rules.JobOf(toJobs(r.jobs), record.Job)
	for _, row := range r.pauses {
		if facts.Paused = (&store.QueuePause{By: row.Actor}); row.Actor != "" {
			facts.Paused.Since = conn.TimesUTC(&row.At)
		}
	}
	r.waiting(&facts)
	r.running(&facts)
	for _, row := range r.keys {
		if !rules.RegainsKey(store.KeyHolder{Stored: row.State >= 0, State: store.State(row.State), Held: row.Held}) {
			facts.KeyHolder = &row.RunID
		}
	}
	return facts, nil
}

// waiting adds what concerns a pending run.
func (r *factRows) waiting(facts *store.Facts) {
	facts.More = len(r.lanes) > store.FactsLanes
	for _, row := range r.lanes[:min(len(r.lanes), store.FactsLanes)] {
		most := int64(aheadOfOthers)
		if row.Far == 0 {
			most = store.FactsAhead
		}
		facts.Lanes = append(facts.Lanes, store.LaneFacts{Queue: row.Queue, Job: row.Job, Priority: int(row.Priority), Ended: row.Ended,
			Ahead: store.Count{N: row.Ahead, AtLeast: row.Ahead >= most}})
	}
	for _, row := range r.holders {
		facts.Held = &store.HeldRow{PID: int(row.Pid), Application: row.Application}
		if row.Since.Unix() != 0 {
			facts.Held.Since = conn.TimesUTC(&row.Since)
		}
	}
}

// running adds what concerns a run that executes.
func (r *factRows) running(facts *store.Facts) {
	for _, row := range r.leases {
		facts.CancelReason = row.Cancel
		if row.Leased {
			expires := row.ExpiresAt.UTC()
			facts.Lease = &store.LeaseFacts{Worker: row.Worker, Instance: row.Instance, AcquiredAt: row.AcquiredAt.UTC(), ExpiresAt: expires,
				RenewedAt: expires.Add(-conn.FromMicro(row.Duration))}
		}
	}
}

// gatesOf are the limits of a run that waits, with its keys.
func (r *Reader) gatesOf(ctx context.Context, run *store.Record) ([]store.GateFacts, error) {
	uses, err := store.ParseLimitTexts(run.Limits)
	if err != nil {
		return nil, err
	}
	set := numbers.LimitSet{store.QueueCap(run.Queue): nil}
	for _, use := range uses {
		set[store.LimitName(use.Limit)] = nil
	}
	if err := r.numbers.FindLimits(ctx, r.db.Reading, set, false); err != nil {
		return nil, err
	}
	if queueCap := set[store.QueueCap(run.Queue)]; queueCap != nil {
		uses = rules.UnderCap(uses, run.Queue, &queueCap.Limit)
	}
	var gates []store.GateFacts
	for _, use := range uses {
		known := set[store.LimitName(use.Limit)]
		if known == nil {
			continue
		}
		gates = append(gates, store.GateFacts{Use: use, GateInfo: store.GateInfo{Limit: known.Limit, Key: use.Key}})
		if known.Kind == store.LimitDynamicWindow && use.Key != "" { // what all keys share
			gates = append(gates, store.GateFacts{Use: use, GateInfo: store.GateInfo{Limit: known.Limit}})
		}
	}
	if len(gates) == 0 {
		return nil, nil
	}
	err = r.inspect(ctx, func(b *conn.Batch) {
		for i := range gates {
			askGate(b, &gates[i].GateInfo)
		}
	})
	return gates, err
}

const (
	// problemsFew is up to how many dead runs of some jobs or queues all of them are read.
	problemsFew = store.MaxProblems
	// problemsExamined bounds the dead runs among which those of some jobs or queues are
	// looked for that have more.
	problemsExamined = 20_000
)

// Problems lists the dead runs that ended last.
func (r *Reader) Problems(ctx context.Context, filter store.ProblemFilter) ([]store.Problem, error) {
	most, err := filter.Most()
	if err != nil {
		return nil, err
	}
	open, since := filter.Scope == store.OpenProblems, filter.Since
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	var rows []queries.ProblemsRow
	err = r.inspect(ctx, func(b *conn.Batch) {
		if len(filter.Jobs)+len(filter.Queues) == 0 {
			b.Add(queries.Problems, open, since, conn.Small(most)).Query(conn.Collect(&rows))
			return
		}
		b.Add(queries.ProblemsOf, conn.Small(most), conn.OrEmpty(filter.Jobs), conn.OrEmpty(filter.Queues), conn.Small(problemsFew), open, since, conn.Small(problemsExamined)).Query(conn.Collect(&rows))
	})
	if err != nil {
		return nil, r.db.Fail("problems", err)
	}
	problems := make([]store.Problem, len(rows))
	for i, row := range rows {
		problems[i] = store.Problem{Run: row.RunID, Job: row.Job, Queue: row.Queue, EndedAt: row.EndedAt.UTC(), Reason: rules.ProblemReason(row.Reason),
			AcknowledgedAt: conn.TimesUTC(row.AcknowledgedAt), AcknowledgedBy: row.AcknowledgedBy}
	}
	return problems, nil
}
