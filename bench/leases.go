package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/backend"
)

// insertLeases stores $1 held leases of $2 runs each.
const insertLeases = `INSERT INTO durable.leases (claim_id, acquired_at, expires_at, duration, worker, alone, run_ids)
	SELECT gen_random_uuid(), now(), now() + interval '1 hour', 3600000000, 1, false, (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, $2::int) WHERE i > 0)
	FROM generate_series(1, $1::int) i RETURNING claim_id`

// leases renews held leases, all in one call, as a worker does at each beat.
func (b *bench) leases(ctx context.Context, claims, runs, beats int) (sample, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	rows, err := w.conn.Query(ctx, insertLeases, claims, runs)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	held := make([]lease.ClaimID, len(ids))
	for i := range ids {
		held[i] = lease.ClaimID(ids[i])
	}
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var took []float64
	var before spent
	for i := range beats + 2 {
		if i == 2 {
			if before, err = w.fast(ctx); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		renewed, err := db.Renew(ctx, held, time.Hour)
		if err != nil || len(renewed) != claims {
			return nil, fmt.Errorf("renewed %d leases of %d: %w", len(renewed), claims, err)
		}
		if i >= 2 {
			took = append(took, milliseconds(time.Since(began)))
		}
	}
	after, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return sample{
		"beat": percentile(took, 0.5), "most": took[len(took)-1], "server": micro(after.cpu-before.cpu) / 1e3 / float64(beats),
		"wal": (after.wal - before.wal) / float64(beats) / 1024,
	}, nil
}

func leasesRow() row {
	holding := func(name string, claims, runs, beats int) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) {
			return b.leases(ctx, claims, runs, beats)
		}}
	}
	return row{
		name: "leases", long: true, title: "one beat of a process that holds 10 000 runs",
		figures: []figure{
			{key: "beat", title: "time, median", unit: "ms", less: true, bound: 5, plain: true}, {key: "most", title: "time, most", unit: "ms", less: true, plain: true},
			{key: "server", title: "server CPU", unit: "ms", less: true, plain: true}, {key: "wal", title: "WAL", unit: "KiB", less: true, plain: true},
		},
		sides: []side{holding("100 claims of 100", 100, 100, 200), holding("10 claims of 1000", 10, 1000, 200), holding("10 000 claims of one", 10_000, 1, 20)},
	}
}

// sqliteTwoRow drains one file with two processes.
func sqliteTwoRow(n int) row {
	return row{
		name: "sqlite-two", long: true,
		title:   fmt.Sprintf("drain %d runs in one SQLite file with two processes (share: of one process)", n),
		figures: []figure{rate(0), {key: "share", title: "of one process", unit: "%"}, {key: "least", title: "runs of the process that had fewer", unit: "%", bound: 25}},
		sides: []side{compared(drain{worker: spec{Contender: ours}, on: onSQLite, n: n, processes: 2},
			drain{worker: spec{Contender: ours}, on: onSQLite, n: n})},
	}
}
