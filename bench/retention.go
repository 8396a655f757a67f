package main

import (
	"context"
	"fmt"
	"time"
)

// retentionRow drains beside runs that are to be deleted: by a worker that does,
// and by one that does not. There is one for twenty that are drained: at our
// speed more than the thousand a second that is asked for.
func retentionRow(n, old int) row {
	finished := func(ctx context.Context, w *watch) error {
		_, err := w.conn.Exec(ctx, insertOld, old)
		return err
	}
	sweeping := func(every time.Duration) drain {
		s := tuned(ours)
		s.Sweep = every
		return drain{worker: s, n: n, ballast: finished, old: old}
	}
	return row{
		name: "retention", long: true,
		title: fmt.Sprintf("drain %d runs while others of %d that ended long ago are deleted (share: of a drain beside them without)", n, old),
		figures: append([]figure{
			{key: "rate", title: "throughput", unit: "/s"}, {key: "share", title: "of the same without", unit: "%", bound: 90},
			{key: "swept", title: "deleted meanwhile", unit: "/s", bound: 1000}, thrift(),
		}, unbounded(costs())...),
		sides: []side{compared(sweeping(time.Second), sweeping(24*time.Hour))},
	}
}

// insertOld stores $1 runs that succeeded thirty hours ago, with ids of that
// time.
const insertOld = `WITH l AS (INSERT INTO durable.lanes (queue, job, priority) VALUES ('default', 'old', 0) RETURNING id)
	INSERT INTO durable.runs (id, claim_id, fence, created_at, due_at, started_at, finished_at, lane, attempt, max_attempts, state, args)
	SELECT (lpad(to_hex((extract(epoch FROM now() - interval '30 hours') * 1000)::bigint + i / 10), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid,
		gen_random_uuid(), i, t.at, t.at, t.at, t.at, l.id, 1, 3, 2, '{"n":10000000}'
	FROM l, generate_series(1, $1::int) i, (SELECT now() - interval '30 hours' AS at) t`

// countOld counts what is left of them.
const countOld = `SELECT count(*) FROM durable.runs WHERE finished_at < now() - interval '29 hours'`

// ended stores n runs that succeeded a minute ago, the first-th and following.
func (w *watch) ended(ctx context.Context, first, n int) error {
	if n == 0 {
		return nil
	}
	_, err := w.conn.Exec(ctx, insertEnded, first, n)
	return err
}

// insertEnded is insertOld of a minute ago, the $1-th and $2 following ones.
const insertEnded = `WITH l AS (INSERT INTO durable.lanes (queue, job, priority) VALUES ('default', 'ended', 0)
		ON CONFLICT (queue, job, priority) DO UPDATE SET job = excluded.job RETURNING id)
	INSERT INTO durable.runs (id, claim_id, fence, created_at, due_at, started_at, finished_at, lane, attempt, max_attempts, state, args)
	SELECT (lpad(to_hex((extract(epoch FROM t.at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex($1::int + i), 12, '0'))::uuid,
		gen_random_uuid(), i, t.at, t.at, t.at, t.at, l.id, 1, 3, 2, '{"n":10000000}'
	FROM l, generate_series(1, $2::int) i, (SELECT now() - interval '1 minute' AS at) t`
