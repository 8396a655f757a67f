-- name: Run :one
-- runs_pkey, lanes_pkey, workers_pkey, problems_pkey, attempts_pkey. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id = @id;

-- name: Attempts :many
-- attempts_pkey. No locks.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log FROM durable.attempts WHERE run_id = @run_id ORDER BY fence;

-- name: FilteredLanes :many
-- Reads lanes, a small table. No locks.
SELECT id FROM durable.lanes
WHERE (pg_catalog.cardinality(@jobs::text[]) = 0 OR job = ANY (@jobs::text[])) AND (pg_catalog.cardinality(@queues::text[]) = 0 OR queue = ANY (@queues::text[]));

-- name: FloorOfRuns :many
-- runs_pkey backwards, so many entries and no more. No locks.
SELECT id FROM durable.runs WHERE id < @below AND id >= @from_id ORDER BY id DESC OFFSET @skip LIMIT 1;

-- name: ListRuns :many
-- runs_pkey backwards from below to from_id, which the caller has chosen so that
-- it is not far. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id < @below AND r.id >= @from_id
  AND (pg_catalog.cardinality(@states::smallint[]) = 0 OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (@lanes::int[]))
  AND (@tag::text = '' OR @tag::text = ANY (r.tags))
ORDER BY r.id DESC LIMIT @most;

-- name: NewestProblems :many
-- problems_lane: one range for each state and lane, read backwards, no more of it
-- than is wanted. No locks.
SELECT p.run_id
FROM (SELECT pg_catalog.unnest(@states::smallint[]) state) s CROSS JOIN (SELECT pg_catalog.unnest(@lanes::int[]) lane) l
CROSS JOIN LATERAL (SELECT b.run_id FROM durable.problems b
    WHERE b.state = s.state AND b.lane = l.lane AND b.run_id < @below AND b.run_id >= @from_id
    ORDER BY b.run_id DESC LIMIT @most) p
ORDER BY p.run_id DESC LIMIT @most;

-- name: UnfinishedOf :many
-- ready_order for the lanes and the lines of their isolated runs, and leases; no
-- more than so many of either. No locks.
(SELECT y.run_id::uuid AS run_id, true AS waiting FROM durable.ready y WHERE y.lane = ANY (@lanes::int[]) LIMIT @most)
UNION ALL
(SELECT pg_catalog.unnest(b.run_ids)::uuid AS run_id, false AS waiting FROM durable.leases b WHERE @running::boolean LIMIT 5 * @most::int);

-- name: Stranded :many
-- runs_pkey backwards, so many rows and no more, then leases_pkey for those that
-- are running. No locks. Running runs whose claim has no lease, among the newest.
SELECT r.id
FROM (SELECT b.id, b.claim_id, b.state FROM durable.runs b
      WHERE b.id < @below AND b.id >= @from_id
      ORDER BY b.id DESC
      LIMIT @look) r
WHERE r.state = 1 AND NOT EXISTS (SELECT FROM durable.leases l WHERE l.claim_id = r.claim_id)
LIMIT @most;

-- name: ListThese :many
-- runs_pkey, one probe for each id. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id = ANY (@ids::uuid[]) AND r.id < @below AND r.id >= @from_id
  AND (pg_catalog.cardinality(@states::smallint[]) = 0 OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (@lanes::int[]))
  AND (@tag::text = '' OR @tag::text = ANY (r.tags))
ORDER BY r.id DESC LIMIT @most;

-- name: CountSome :one
-- Counts each up to a bound and no further: runs_pkey, ready_order, leases and
-- runs_pkey, problems_lane. All in one snapshot. No locks.
SELECT (SELECT count(*) FROM (SELECT FROM durable.runs LIMIT @most::int) a) AS total,
       (SELECT count(*) FROM (SELECT FROM durable.ready LIMIT @most::int) b) AS pending,
       (SELECT count(*) FROM (SELECT FROM durable.runs r
            WHERE r.id = ANY (ARRAY(SELECT pg_catalog.unnest(l.run_ids) FROM durable.leases l LIMIT @most::int)) AND r.state = 1) c) AS running,
       (SELECT count(*) FROM (SELECT FROM durable.problems WHERE state = 4 LIMIT @most::int) d) AS dead,
       (SELECT count(*) FROM (SELECT FROM durable.problems WHERE state = 5 LIMIT @most::int) e) AS cancelled;

-- name: EstimateRows :one
-- pg_class: the density of the last vacuum or analyze times the size as it is
-- now, as the planner does it; -1 where there was none. No locks, and no rows
-- are read.
SELECT (CASE WHEN c.reltuples >= 0 AND c.relpages > 0
             THEN c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::int) ELSE -1 END)::bigint AS estimate,
       (pg_relation_size(c.oid) / current_setting('block_size')::int)::bigint AS pages
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = @schema_name::text AND c.relname = @table_name::text AND c.relkind = 'r';

-- name: SampleRuns :one
-- About so many percent of the pages of runs. No locks.
SELECT count(*) FROM durable.runs TABLESAMPLE SYSTEM (@percent::real);

-- name: SampleReady :one
-- About so many percent of the pages of ready. No locks.
SELECT count(*) FROM durable.ready TABLESAMPLE SYSTEM (@percent::real);

-- name: SampleProblems :one
-- About so many percent of the pages of problems. No locks.
SELECT count(*) FILTER (WHERE state = 4) AS dead, count(*) FILTER (WHERE state = 5) AS cancelled
FROM durable.problems TABLESAMPLE SYSTEM (@percent::real);
