-- name: Workers :many
-- The workers that have reported within so many microseconds, or hold an unexpired lease.
-- Index: workers_present; reads leases, a small table, and beats_pkey. Locks: none.
WITH held AS (
    SELECT leases.worker, count(*) AS leases
    FROM durable.leases
    LEFT JOIN durable.beats ON beats.id = leases.beat
    WHERE coalesce(leases.expires_at, beats.expires_at) > now()
    GROUP BY leases.worker
)
SELECT
    workers.name,
    workers.instance,
    workers.started_at,
    coalesce(workers.reported_at, 'epoch')::timestamptz AS reported_at,
    workers.report::text AS report,
    coalesce(held.leases, 0)::bigint AS leases,
    now()::timestamptz AS now
FROM durable.workers
LEFT JOIN held ON held.worker = workers.id
WHERE workers.present
  AND workers.report IS NOT NULL
  AND (
      workers.reported_at > now() - (@within::bigint) * interval '1 microsecond'
      OR held.leases > 0
  )
ORDER BY workers.reported_at DESC
LIMIT @most::int;

-- name: SurveyLanes :many
-- The more lanes, the fewer runs of each line are counted: so many of all together, but
-- so many of each at least, and at most.
-- Index: reads lanes, a small table; ready_order for each line, up to that many rows; of
-- waiting so many rows in all; of the runs in leases up to so many, by runs_pkey.
-- Locks: none.
WITH bound AS MATERIALIZED (
    SELECT
        greatest(
            @line_least::int,
            least(@most::int, (@total::int) / greatest(count(*), 1))
        )::bigint AS line_most
    FROM durable.lanes
), limited AS MATERIALIZED (
    SELECT
        abs(waiters.lane) AS lane,
        count(*) AS pending,
        count(*) FILTER (WHERE waiters.due_at <= now()) AS due,
        count(*) FILTER (WHERE waiters.lane < 0) AS isolated,
        min(waiters.due_at) AS oldest
    FROM (
        SELECT waiting.lane, waiting.due_at
        FROM durable.waiting
        LIMIT @most::int
    ) waiters
    GROUP BY abs(waiters.lane)
), held AS (
    SELECT named.claim_id, named.run_id
    FROM (
        SELECT leases.claim_id, unnest(leases.run_ids) AS run_id
        FROM durable.leases
    ) named
    LIMIT @held_most::int
), running AS (
    SELECT abs(runs.lane) AS lane, count(*) AS runs
    FROM held
    JOIN durable.runs ON runs.id = held.run_id
    WHERE runs.claim_id = held.claim_id
      AND runs.state = durable.running()
    GROUP BY abs(runs.lane)
), some_lanes AS (
    SELECT
        lanes.id,
        lanes.queue,
        lanes.job,
        lanes.paused AND (queues.cap IS NULL OR queues.stopped) AS paused
    FROM durable.lanes
    LEFT JOIN durable.queues ON queues.name = lanes.queue
    ORDER BY lanes.id
    LIMIT @lanes::int
), counted AS (
    SELECT
        some_lanes.queue,
        some_lanes.job,
        some_lanes.paused,
        ordinary.pending + isolated.pending + coalesce(limited.pending, 0) AS pending,
        greatest(
            ordinary.pending,
            isolated.pending,
            CASE
                WHEN limited.pending > 0 THEN (SELECT sum(limited.pending) FROM limited)
            END
        ) AS largest,
        greatest(
            ordinary.due,
            isolated.due,
            CASE
                WHEN limited.due > 0 THEN (SELECT sum(limited.pending) FROM limited)
            END
        ) AS largest_due,
        greatest(
            isolated.pending,
            CASE
                WHEN limited.isolated > 0 THEN (SELECT sum(limited.pending) FROM limited)
            END
        ) AS largest_isolated,
        isolated.pending + coalesce(limited.isolated, 0) AS isolated,
        ordinary.due + isolated.due + coalesce(limited.due, 0) AS due,
        least(ordinary.oldest, isolated.oldest, limited.oldest) AS oldest,
        coalesce(running.runs, 0) AS running
    FROM some_lanes
    LEFT JOIN running ON running.lane = some_lanes.id
    LEFT JOIN limited ON limited.lane = some_lanes.id
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS pending,
            count(*) FILTER (WHERE first_ready.due_at <= now()) AS due,
            min(first_ready.due_at) AS oldest
        FROM (
            SELECT ready.due_at
            FROM durable.ready
            WHERE ready.lane = some_lanes.id
            ORDER BY ready.due_at, ready.run_id
            LIMIT (SELECT bound.line_most FROM bound)
        ) first_ready
    ) ordinary
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS pending,
            count(*) FILTER (WHERE first_ready.due_at <= now()) AS due,
            min(first_ready.due_at) AS oldest
        FROM (
            SELECT ready.due_at
            FROM durable.ready
            WHERE ready.lane = -some_lanes.id
            ORDER BY ready.due_at, ready.run_id
            LIMIT (SELECT bound.line_most FROM bound)
        ) first_ready
    ) isolated
)
SELECT
    counted.queue,
    counted.job,
    bool_or(counted.paused)::boolean AS paused,
    sum(counted.pending)::bigint AS pending,
    max(counted.largest)::bigint AS largest,
    max(counted.largest_due)::bigint AS largest_due,
    max(counted.largest_isolated)::bigint AS largest_isolated,
    sum(counted.isolated)::bigint AS isolated,
    sum(counted.due)::bigint AS due,
    coalesce(min(counted.oldest), 'epoch')::timestamptz AS oldest,
    sum(counted.running)::bigint AS running,
    (SELECT count(*) FROM held)::bigint AS held,
    (SELECT count(*) FROM some_lanes)::bigint AS lanes,
    (SELECT bound.line_most FROM bound)::bigint AS line_most
FROM counted
GROUP BY counted.queue, counted.job
ORDER BY counted.queue, counted.job;

-- name: SurveyedAt :one
-- Locks: none.
SELECT now()::timestamptz AS now;

-- name: ExpiredLeases :one
-- The leases that expired a while ago, counted up to so many.
-- Index: reads leases, a small table, and beats_pkey. Locks: none.
SELECT count(*)
FROM (
    SELECT
    FROM durable.leases
    LEFT JOIN durable.beats ON beats.id = leases.beat
    WHERE coalesce(leases.expires_at, beats.expires_at)
        < now() - (@ago::bigint) * interval '1 microsecond'
    LIMIT @most::int
) expired;
