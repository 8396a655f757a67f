-- name: Run :one
-- Index: runs_pkey, lanes_pkey, workers_pkey, problems_pkey, attempts_pkey. Locks: none.
SELECT
    runs.id,
    lanes.job,
    lanes.queue,
    lanes.priority,
    runs.state,
    runs.attempt,
    runs.max_attempts,
    runs.crash_count,
    (runs.lane < 0)::boolean AS isolated,
    runs.due_at,
    runs.created_at,
    runs.started_at,
    runs.finished_at,
    runs.expires_at,
    coalesce(runs.timeout, 0)::bigint AS timeout,
    runs.fence,
    runs.tags,
    coalesce(runs.limits, '{}')::text[] AS limits,
    coalesce(runs.key, '')::text AS key,
    coalesce(runs.metadata::text, '')::text AS metadata,
    runs.args::text AS args,
    coalesce(runs.result::text, '')::text AS result,
    coalesce(durable.worker_name(runs.worker), '')::text AS worker,
    coalesce(durable.schedule_name(runs.schedule), runs.schedule_name, '')::text AS schedule,
    coalesce(runs.occurs_at, '')::text AS occurs_at,
    CASE
        WHEN runs.state = durable.succeeded() THEN ''
        ELSE durable.fault_of(runs.id)
    END::text AS error
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = @id;

-- name: Attempts :many
-- Index: attempts_pkey. Locks: none.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log
FROM durable.attempts
WHERE run_id = @run_id
ORDER BY fence;

-- name: FilteredLanes :many
-- Index: none; reads lanes, a small table. Locks: none.
SELECT id
FROM durable.lanes
WHERE (pg_catalog.cardinality(@jobs::text[]) = 0 OR job = ANY (@jobs::text[]))
  AND (pg_catalog.cardinality(@queues::text[]) = 0 OR queue = ANY (@queues::text[]));

-- name: FloorOfRuns :many
-- Index: runs_pkey backwards, so many entries and no more. Locks: none.
SELECT id
FROM durable.runs
WHERE id < @below
  AND id >= @from_id
ORDER BY id DESC
OFFSET @skip
LIMIT 1;

-- name: ListRuns :many
-- Index: runs_pkey backwards from below to from_id, which the caller has chosen so that it
-- is not far. Locks: none.
SELECT
    runs.id,
    lanes.job,
    lanes.queue,
    lanes.priority,
    runs.state,
    runs.attempt,
    runs.max_attempts,
    runs.crash_count,
    (runs.lane < 0)::boolean AS isolated,
    runs.due_at,
    runs.created_at,
    runs.started_at,
    runs.finished_at,
    runs.expires_at,
    coalesce(runs.timeout, 0)::bigint AS timeout,
    runs.fence,
    runs.tags,
    coalesce(runs.limits, '{}')::text[] AS limits,
    coalesce(runs.key, '')::text AS key,
    coalesce(runs.metadata::text, '')::text AS metadata,
    runs.args::text AS args,
    coalesce(runs.result::text, '')::text AS result,
    coalesce(durable.worker_name(runs.worker), '')::text AS worker,
    coalesce(durable.schedule_name(runs.schedule), runs.schedule_name, '')::text AS schedule,
    coalesce(runs.occurs_at, '')::text AS occurs_at,
    CASE
        WHEN runs.state = durable.succeeded() THEN ''
        ELSE durable.fault_of(runs.id)
    END::text AS error
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
WHERE runs.id < @below
  AND runs.id >= @from_id
  AND (
      pg_catalog.cardinality(@states::smallint[]) = 0
      OR runs.state = ANY (@states::smallint[])
  )
  AND (@all_lanes::boolean OR abs(runs.lane) = ANY (@lanes::int[]))
  AND (@tag::text = '' OR @tag::text = ANY (runs.tags))
-- block: selected
  AND (@key::text = '' OR runs.key = @key::text)
  AND durable.schedule_matches(runs.schedule, @schedule::text)
  AND durable.worker_matches(runs.worker, @worker::text)
  AND (
      sqlc.narg(ended_since)::timestamptz IS NULL
      OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
  )
  AND durable.metadata_matches(runs.metadata, @meta_names::text[], @meta_values::text[])
  AND durable.fault_contains(runs.id, runs.state, @error_text::text)
  AND durable.args_contain(runs.args, @args_texts::text[])
-- end
ORDER BY runs.id DESC
LIMIT @most;

-- name: NewestProblems :many
-- Index: problems_lane: one range for each state and lane, read backwards, no more of it
-- than is wanted. Locks: none.
SELECT newest.run_id
FROM (SELECT pg_catalog.unnest(@states::smallint[]) AS state) wanted_states
CROSS JOIN (SELECT pg_catalog.unnest(@lanes::int[]) AS lane) wanted_lanes
CROSS JOIN LATERAL (
    SELECT problems.run_id
    FROM durable.problems
    WHERE problems.state = wanted_states.state
      AND problems.lane = wanted_lanes.lane
      AND problems.run_id < @below
      AND problems.run_id >= @from_id
    ORDER BY problems.run_id DESC
    LIMIT @most
) newest
ORDER BY newest.run_id DESC
LIMIT @most;

-- name: UnfinishedOf :many
-- Index: ready_order for the lanes and the lines of their isolated runs, and leases; no
-- more than so many of either; waiting_order from end to end where few limited runs are in
-- the lanes. Locks: none.
(
    SELECT ready.run_id::uuid AS run_id, true AS waiting
    FROM durable.ready
    WHERE ready.lane = ANY (@lanes::int[])
    LIMIT @most
)
UNION ALL
(
    SELECT limited.run_id::uuid AS run_id, true AS waiting
    FROM durable.waiting limited
    WHERE limited.lane = ANY (@lanes::int[])
    LIMIT @most
)
UNION ALL
(
    SELECT pg_catalog.unnest(leases.run_ids)::uuid AS run_id, false AS waiting
    FROM durable.leases
    WHERE @running::boolean
    LIMIT 5 * @most::int
);

-- name: Stranded :many
-- Running runs whose claim has no lease, among the newest.
-- Index: runs_pkey backwards, so many rows and no more, then leases_pkey for those that
-- are running. Locks: none.
SELECT newest.id
FROM (
    SELECT runs.id, runs.claim_id, runs.state
    FROM durable.runs
    WHERE runs.id < @below
      AND runs.id >= @from_id
    ORDER BY runs.id DESC
    LIMIT @examined
) newest
WHERE newest.state = durable.running()
  AND NOT EXISTS (
      SELECT
      FROM durable.leases
      WHERE leases.claim_id = newest.claim_id
  )
LIMIT @most;

-- name: ListThese :many
-- Index: runs_pkey, one probe for each id. Locks: none.
SELECT
    runs.id,
    lanes.job,
    lanes.queue,
    lanes.priority,
    runs.state,
    runs.attempt,
    runs.max_attempts,
    runs.crash_count,
    (runs.lane < 0)::boolean AS isolated,
    runs.due_at,
    runs.created_at,
    runs.started_at,
    runs.finished_at,
    runs.expires_at,
    coalesce(runs.timeout, 0)::bigint AS timeout,
    runs.fence,
    runs.tags,
    coalesce(runs.limits, '{}')::text[] AS limits,
    coalesce(runs.key, '')::text AS key,
    coalesce(runs.metadata::text, '')::text AS metadata,
    runs.args::text AS args,
    coalesce(runs.result::text, '')::text AS result,
    coalesce(durable.worker_name(runs.worker), '')::text AS worker,
    coalesce(durable.schedule_name(runs.schedule), runs.schedule_name, '')::text AS schedule,
    coalesce(runs.occurs_at, '')::text AS occurs_at,
    CASE
        WHEN runs.state = durable.succeeded() THEN ''
        ELSE durable.fault_of(runs.id)
    END::text AS error
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = ANY (@ids::uuid[])
  AND runs.id < @below
  AND runs.id >= @from_id
  AND (
      pg_catalog.cardinality(@states::smallint[]) = 0
      OR runs.state = ANY (@states::smallint[])
  )
  AND (@all_lanes::boolean OR abs(runs.lane) = ANY (@lanes::int[]))
  AND (@tag::text = '' OR @tag::text = ANY (runs.tags))
-- block: selected
  AND (@key::text = '' OR runs.key = @key::text)
  AND durable.schedule_matches(runs.schedule, @schedule::text)
  AND durable.worker_matches(runs.worker, @worker::text)
  AND (
      sqlc.narg(ended_since)::timestamptz IS NULL
      OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
  )
  AND durable.metadata_matches(runs.metadata, @meta_names::text[], @meta_values::text[])
  AND durable.fault_contains(runs.id, runs.state, @error_text::text)
  AND durable.args_contain(runs.args, @args_texts::text[])
-- end
ORDER BY runs.id DESC
LIMIT @most;

-- name: CountSome :one
-- Counts each up to a bound and no further, all in one snapshot.
-- Index: runs_pkey, ready_order, waiting_order, leases and runs_pkey, problems_lane. Locks: none.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.runs
            LIMIT @most::int
        ) any_run
    ) AS total,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.ready
            LIMIT @most::int
        ) waiting
    ) AS ready,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.waiting
            LIMIT @most::int
        ) limited
    ) AS limited,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.runs
            WHERE runs.id = ANY (ARRAY(
                    SELECT pg_catalog.unnest(leases.run_ids)
                    FROM durable.leases
                    LIMIT @most::int
                ))
              AND runs.state = durable.running()
        ) leased
    ) AS running,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.problems
            WHERE state = durable.dead()
            LIMIT @most::int
        ) ended_dead
    ) AS dead,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.problems
            WHERE state = durable.cancelled()
            LIMIT @most::int
        ) ended_cancelled
    ) AS cancelled;

-- name: CountMatching :many
-- For each state asked for: how many runs were examined, and how many of them pass.
-- Index: ready_order, waiting_order, leases and problems_lane, no more than so many rows of
-- each, then one probe of runs_pkey for each of these; runs_pkey backwards for the succeeded
-- ones. What passes is decided before the rows are grouped. Locks: none.
WITH named AS MATERIALIZED (
    (
        SELECT durable.pending() AS state, ready.run_id AS id
        FROM durable.ready
        WHERE durable.pending() = ANY (@states::smallint[])
          AND ready.lane = ANY (@lines::int[])
        LIMIT @most::int
    )
    UNION ALL
    (
        SELECT durable.pending() AS state, limited.run_id AS id
        FROM durable.waiting limited
        WHERE durable.pending() = ANY (@states::smallint[])
          AND limited.lane = ANY (@lines::int[])
        LIMIT @most::int
    )
    UNION ALL
    (
        SELECT DISTINCT durable.running() AS state, pg_catalog.unnest(leases.run_ids) AS id
        FROM durable.leases
        WHERE durable.running() = ANY (@states::smallint[])
        LIMIT @most::int
    )
    UNION ALL
    (
        SELECT problems.state, problems.run_id AS id
        FROM durable.problems
        WHERE problems.state = durable.dead()
          AND durable.dead() = ANY (@states::smallint[])
          AND problems.lane = ANY (@lines::int[])
        LIMIT @most::int
    )
    UNION ALL
    (
        SELECT problems.state, problems.run_id AS id
        FROM durable.problems
        WHERE problems.state = durable.cancelled()
          AND durable.cancelled() = ANY (@states::smallint[])
          AND problems.lane = ANY (@lines::int[])
        LIMIT @most::int
    )
), examined AS (
    (
        SELECT
            durable.succeeded() AS sought,
            newest.id, newest.state, newest.lane, newest.tags, newest.key, newest.schedule,
            newest.worker, newest.finished_at, newest.metadata, newest.args
        FROM durable.runs newest
        WHERE durable.succeeded() = ANY (@states::smallint[])
          AND newest.id < @below
          AND newest.id >= @from_id
        ORDER BY newest.id DESC
        LIMIT @most::int
    )
    UNION ALL
    SELECT
        named.state AS sought,
        probed.id, probed.state, probed.lane, probed.tags, probed.key, probed.schedule,
        probed.worker, probed.finished_at, probed.metadata, probed.args
    FROM named
    LEFT JOIN LATERAL (
        SELECT
            known.id, known.state, known.lane, known.tags, known.key,
            known.schedule, known.worker, known.finished_at, known.metadata,
            known.args
        FROM durable.runs known
        WHERE known.id = named.id
        LIMIT 1
    ) probed ON true
), judged AS (
    SELECT
        runs.sought,
        (
            runs.state = runs.sought
            AND runs.id < @below
            AND runs.id >= @from_id
            AND (@all_lanes::boolean OR abs(runs.lane) = ANY (@lanes::int[]))
            AND (@tag::text = '' OR @tag::text = ANY (runs.tags))
-- block: selected
            AND (@key::text = '' OR runs.key = @key::text)
            AND durable.schedule_matches(runs.schedule, @schedule::text)
            AND durable.worker_matches(runs.worker, @worker::text)
            AND (
                sqlc.narg(ended_since)::timestamptz IS NULL
                OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
            )
            AND durable.metadata_matches(runs.metadata, @meta_names::text[], @meta_values::text[])
            AND durable.fault_contains(runs.id, runs.state, @error_text::text)
            AND durable.args_contain(runs.args, @args_texts::text[])
-- end
        ) AS passes
    FROM examined runs
    OFFSET 0
)
SELECT
    judged.sought::smallint AS state,
    count(*) AS examined,
    count(*) FILTER (WHERE judged.passes) AS passing
FROM judged
GROUP BY judged.sought;

-- name: CountThese :many
-- How many of the runs pass, by state. Index: runs_pkey, one probe for each id. Locks: none.
SELECT runs.state, count(*) AS passing
FROM durable.runs
WHERE runs.id = ANY (@ids::uuid[])
  AND runs.id < @below
  AND runs.id >= @from_id
  AND runs.state = ANY (@states::smallint[])
  AND (@all_lanes::boolean OR abs(runs.lane) = ANY (@lanes::int[]))
  AND (@tag::text = '' OR @tag::text = ANY (runs.tags))
-- block: selected
  AND (@key::text = '' OR runs.key = @key::text)
  AND durable.schedule_matches(runs.schedule, @schedule::text)
  AND durable.worker_matches(runs.worker, @worker::text)
  AND (
      sqlc.narg(ended_since)::timestamptz IS NULL
      OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
  )
  AND durable.metadata_matches(runs.metadata, @meta_names::text[], @meta_values::text[])
  AND durable.fault_contains(runs.id, runs.state, @error_text::text)
  AND durable.args_contain(runs.args, @args_texts::text[])
-- end
GROUP BY runs.state;

-- name: RunsOfKey :many
-- Index: runs_key backwards, so many entries and no more. Locks: none.
SELECT runs.id
FROM durable.runs
WHERE runs.key = @key::text
  AND runs.id < @below
  AND runs.id >= @from_id
ORDER BY runs.id DESC
LIMIT @most;

-- name: RunsOfSchedule :many
-- Index: schedules_name_key, then runs_schedule backwards, so many entries and no more.
-- Locks: none.
SELECT runs.id
FROM durable.runs
WHERE runs.schedule = (
        SELECT schedules.id
        FROM durable.schedules
        WHERE schedules.name = @schedule::text
    )
  AND runs.id < @below
  AND runs.id >= @from_id
ORDER BY runs.id DESC
LIMIT @most;

-- name: EstimateRows :one
-- The density of the last vacuum or analyze times the size as it is now, as the planner
-- does it; -1 where there was none.
-- Index: pg_class; no rows of the table are read. Locks: none.
SELECT
    (
        CASE
            WHEN pg_class.reltuples >= 0 AND pg_class.relpages > 0
                THEN pg_class.reltuples / pg_class.relpages * (
                    pg_relation_size(pg_class.oid) / current_setting('block_size')::int
                )
            ELSE -1
        END
    )::bigint AS estimate,
    (pg_relation_size(pg_class.oid) / current_setting('block_size')::int)::bigint AS pages
FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = @schema_name::text
  AND pg_class.relname = @table_name::text
  AND pg_class.relkind = 'r';

-- name: SampleRuns :one
-- About so many percent of the pages of runs, and how many of their runs have succeeded.
-- Locks: none.
SELECT
    count(*) AS total,
    count(*) FILTER (WHERE state = durable.succeeded()) AS succeeded
FROM durable.runs TABLESAMPLE SYSTEM (@percent::real);

-- name: CountSucceededAtEnds :one
-- The succeeded ones among the newest and the oldest runs.
-- Index: runs_pkey from both ends, so many rows of each and no more. Locks: none.
SELECT count(*) FILTER (WHERE ends.state = durable.succeeded())
FROM (
    (
        SELECT id, state
        FROM durable.runs
        ORDER BY id DESC
        LIMIT @examined
    )
    UNION
    (
        SELECT id, state
        FROM durable.runs
        ORDER BY id
        LIMIT @examined
    )
) ends;

-- name: SampleReady :one
-- About so many percent of the pages of ready. Locks: none.
SELECT count(*)
FROM durable.ready TABLESAMPLE SYSTEM (@percent::real);

-- name: SampleWaiting :one
-- About so many percent of the pages of waiting. Locks: none.
SELECT count(*)
FROM durable.waiting TABLESAMPLE SYSTEM (@percent::real);

-- name: SampleProblems :one
-- About so many percent of the pages of problems. Locks: none.
SELECT
    count(*) FILTER (WHERE state = durable.dead()) AS dead,
    count(*) FILTER (WHERE state = durable.cancelled()) AS cancelled
FROM durable.problems TABLESAMPLE SYSTEM (@percent::real);
