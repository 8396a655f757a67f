package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// insertDue stores $2 runs of job $1 that have been due for an hour, the $3-th
// and following of them all, by SQL: millions in a minute.
const insertDue = `WITH l AS (
		INSERT INTO durable.lanes (queue, job, priority) VALUES ('default', $1, 0)
		ON CONFLICT (queue, job, priority) DO UPDATE SET job = excluded.job RETURNING id
	), i AS (
		INSERT INTO durable.runs (id, due_at, lane, max_attempts, args)
		SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex($3::bigint + g), 12, '0'))::uuid,
			now() - interval '1 hour' + g * interval '1 microsecond', l.id, 3, '{"n":10000000}'
		FROM l, generate_series(1, $2::int) g
		RETURNING id, lane, due_at
	) INSERT INTO durable.ready (lane, due_at, run_id) SELECT lane, due_at, id FROM i`

// due stores n runs that are due, after the first ones.
func (w *watch) due(ctx context.Context, job string, first, n int) error {
	const most = 500_000
	for done := 0; done < n; done += most {
		if _, err := w.conn.Exec(ctx, insertDue, job, min(most, n-done), first+done); err != nil {
			return fmt.Errorf("load by SQL: %w", err)
		}
	}
	return nil
}

// cycles claims and settles n runs through the store's own methods, one batch
// after another on one connection, with the marks a worker has.
func cycles(ctx context.Context, w *watch, db durable.Store, n, batch int) (sample, error) {
	heads, err := db.Heads(ctx, store.Serves{Queues: []string{durable.DefaultQueue}, Jobs: []string{jobName}})
	if err != nil {
		return nil, err
	}
	request := store.ClaimRequest{Worker: store.WorkerID{Name: "cycles", Instance: uuid.New()}, Duration: time.Minute, Limit: batch}
	for _, h := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: h.Lane, From: h.DueAt, Take: batch})
	}
	before, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	var claims []float64
	began := time.Now()
	for done := 0; done < n; done += batch {
		request.Claim = lease.NewClaimID()
		asked := time.Now()
		runs, err := db.Claim(ctx, request)
		if err == nil && len(runs) != batch {
			err = fmt.Errorf("claimed %d runs of %d", len(runs), batch)
		}
		if err != nil {
			return nil, err
		}
		claims = append(claims, milliseconds(time.Since(asked)))
		s := store.Settlement{Claim: request.Claim, Worker: request.Worker, Last: true}
		for i := range runs {
			s.Runs = append(s.Runs, store.Settled{ID: runs[i].ID, Outcome: store.Outcome{Kind: store.Success}})
			request.Steps[0].From = runs[i].DueAt
		}
		if _, err := db.Settle(ctx, []store.Settlement{s}); err != nil {
			return nil, err
		}
	}
	took := time.Since(began)
	after, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(claims)
	return sample{
		"rate": float64(n) / took.Seconds(), "server": micro(after.cpu-before.cpu) / float64(n), "wal": (after.wal - before.wal) / float64(n),
		"p50": percentile(claims, 0.5), "p99": percentile(claims, 0.99),
	}, nil
}

// backlog measures claims of 100 in front of many due runs, in their own lane
// and in another.
func (b *bench) backlog(ctx context.Context, own, other int) (sample, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.due(ctx, "unserved", 0, other); err != nil {
		return nil, err
	}
	if err := w.due(ctx, jobName, other, own); err != nil {
		return nil, err
	}
	if err := w.vacuum(ctx); err != nil {
		return nil, err
	}
	if err := w.server.execute(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := cycles(ctx, w, db, 2000, 100); err != nil { // plans and pages
		return nil, err
	}
	return cycles(ctx, w, db, min(50_000, own/4), 100)
}

func backlogRow(n int) row {
	return row{
		name: "claim-backlog", long: true,
		title: fmt.Sprintf("claim and settle 100 at a time in front of %d due runs, beside %d of another lane", n, n),
		figures: []figure{
			{key: "p50", title: "claim p50", unit: "ms", less: true, bound: 2}, {key: "p99", title: "claim p99", unit: "ms", less: true, bound: 2},
			{key: "rate", title: "throughput, one after another", unit: "/s"}, {key: "server", title: "server CPU", unit: "µs/run", less: true},
		},
		sides: []side{{name: ours, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.backlog(ctx, n, n) }}},
	}
}
