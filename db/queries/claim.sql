-- name: Heads :many
-- The earliest due_at of every lane served, and of the line of its isolated runs; and
-- whether its queue is capped, and whether TurnHeads may have any. A lane whose queue is
-- paused is left out.
-- Index: the unique one of lanes (queue, job, priority), then one probe of
-- ready_order per lane. Locks: none. marks maps a lane to the instant from which
-- its line is read; a lane that is not in it is read from the beginning. While an
-- old snapshot is held, a probe without a bound steps over the entry of every run
-- claimed since then.
SELECT
    lanes.id::int AS lane,
    lanes.queue,
    lanes.job,
    lanes.priority,
    head.due_at,
    now()::timestamptz AS now,
    lanes.paused AS capped,
    EXISTS (SELECT FROM durable.limit_lanes) AS limited
FROM durable.lanes
LEFT JOIN LATERAL (
    SELECT ready.due_at
    FROM durable.ready
    WHERE ready.lane = lanes.id
      AND ready.due_at >= coalesce((@marks::jsonb ->> (lanes.id::text))::timestamptz, '-infinity')
    ORDER BY ready.due_at, ready.run_id
    LIMIT 1
) head ON true
WHERE lanes.queue = ANY (@queues::text[])
  AND lanes.job = ANY (@jobs::text[])
  AND (
      NOT lanes.paused
      OR lanes.queue IN (
          SELECT queues.name
          FROM durable.queues
          WHERE queues.cap IS NOT NULL
            AND NOT queues.stopped
      )
  )
UNION ALL
SELECT
    (-lanes.id)::int,
    lanes.queue,
    lanes.job,
    lanes.priority,
    head.due_at,
    now(),
    lanes.paused,
    false
FROM durable.lanes
CROSS JOIN LATERAL (
    SELECT ready.due_at
    FROM durable.ready
    WHERE ready.lane = -lanes.id
    ORDER BY ready.due_at, ready.run_id
    LIMIT 1
) head
WHERE lanes.queue = ANY (@queues::text[])
  AND lanes.job = ANY (@jobs::text[])
  AND (
      NOT lanes.paused
      OR lanes.queue IN (
          SELECT queues.name
          FROM durable.queues
          WHERE queues.cap IS NOT NULL
            AND NOT queues.stopped
      )
  );

-- name: TurnHeads :many
-- The earliest due_at of every line of turns that says anything about lanes served: those
-- of lanes in which limited runs have waited, of their isolated runs, and of the limits.
-- Index: limit_lanes_pkey, lanes_pkey, and one probe of turns_order per line. Locks: none.
SELECT
    limited.lane,
    lanes.queue,
    lanes.job,
    lanes.priority,
    head.due_at,
    now()::timestamptz AS now,
    limited.lane AS line
FROM (SELECT DISTINCT limit_lanes.lane FROM durable.limit_lanes) limited
JOIN durable.lanes ON lanes.id = abs(limited.lane)
LEFT JOIN LATERAL (
    SELECT turns.due_at
    FROM durable.turns
    WHERE turns.line = limited.lane
    ORDER BY turns.due_at, turns.gate
    LIMIT 1
) head ON true
WHERE lanes.queue = ANY (@queues::text[])
  AND lanes.job = ANY (@jobs::text[])
  AND (
      NOT lanes.paused
      OR lanes.queue IN (
          SELECT queues.name
          FROM durable.queues
          WHERE queues.cap IS NOT NULL
            AND NOT queues.stopped
      )
  )
  AND (limited.lane > 0 OR head.due_at IS NOT NULL)
UNION ALL
SELECT
    0,
    limited.queue,
    limited.job,
    limited.priority,
    head.due_at,
    now(),
    durable.line_of_limit(limited.limit_id)
FROM (
    SELECT DISTINCT ON (limit_lanes.limit_id)
        limit_lanes.limit_id,
        lanes.queue,
        lanes.job,
        lanes.priority
    FROM durable.limit_lanes
    JOIN durable.lanes ON lanes.id = abs(limit_lanes.lane)
    WHERE lanes.queue = ANY (@queues::text[])
      AND lanes.job = ANY (@jobs::text[])
      AND (
          NOT lanes.paused
          OR lanes.queue IN (
              SELECT queues.name
              FROM durable.queues
              WHERE queues.cap IS NOT NULL
                AND NOT queues.stopped
          )
      )
    ORDER BY limit_lanes.limit_id, lanes.priority DESC, lanes.id
) limited
LEFT JOIN LATERAL (
    SELECT turns.due_at
    FROM durable.turns
    WHERE turns.line = durable.line_of_limit(limited.limit_id)
    ORDER BY turns.due_at, turns.gate
    LIMIT 1
) head ON true;

-- name: ClaimRuns :many
-- Claims runs for a worker: deletes their rows of ready, inserts one lease for all
-- of them, and starts them.
-- Index: ready_order per step, then runs_pkey. Locks: the rows of ready with SKIP
-- LOCKED, then the runs, which no statement of the store locks while they are
-- pending (see ClaimFreeRuns). array() is evaluated once and cannot take more than
-- the limit; LIMIT may refer to a column outside a LATERAL, and the join is lazy: no
-- more rows are locked than are taken or skipped.
-- Idempotent: a repeat with the same claim_id violates leases_pkey (23505) and
-- changes nothing; ClaimedRuns then returns what the first one got.
-- A row of ready whose run is not pending, which only a change by hand can leave,
-- is deleted and starts nothing: dealt, the number of rows deleted, is then greater
-- than the number of rows returned.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@marks::timestamptz[]) AS mark,
                unnest(@skips::int[]) AS skip,
                unnest(@takes::int[]) AS take
        ) steps,
        LATERAL (
            SELECT ready.ctid
            FROM durable.ready
            WHERE ready.lane = steps.lane
              AND ready.due_at >= steps.mark
              AND ready.due_at <= now()
            ORDER BY ready.due_at, ready.run_id
            OFFSET steps.skip
            LIMIT steps.take
            FOR UPDATE SKIP LOCKED
        ) due
        WHERE NOT EXISTS (
            SELECT
            FROM durable.lanes
            WHERE lanes.id = abs(steps.lane)
              AND lanes.paused
        )
        LIMIT @most
    ))
    RETURNING run_id
), granted AS (
    INSERT INTO durable.leases (
        claim_id, worker, acquired_at, expires_at, duration, alone, run_ids
    )
    SELECT
        @claim_id::uuid,
        @worker::int,
        now(),
        now() + (@duration::bigint) * interval '1 microsecond',
        @duration::bigint,
        @alone::boolean,
        array_agg(taken.run_id)
    FROM taken
    HAVING count(*) > 0
)
UPDATE durable.runs
SET state = durable.running(),
    claim_id = @claim_id::uuid,
    worker = @worker::int,
    attempt = attempt + 1,
    started_at = now(),
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
  AND state = durable.pending()
RETURNING
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    coalesce(expires_at <= now(), false)::boolean AS expired,
    trace, key, schedule, occurs_at, tags,
    metadata::text AS metadata,
    args::text AS args,
    (links IS NOT NULL)::boolean AS linked,
    (SELECT count(*) FROM taken)::int AS dealt;

-- name: ClaimFreeRuns :many
-- ClaimRuns for when another transaction (a user's, an operator's) has locked the row
-- of a pending run. It differs in one join: it locks the runs together with their rows
-- of ready and skips the pairs of which either is locked. Slower by the second
-- lock.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@marks::timestamptz[]) AS mark,
                unnest(@skips::int[]) AS skip,
                unnest(@takes::int[]) AS take
        ) steps,
        LATERAL (
            SELECT waiting.ctid
            FROM durable.ready waiting
            JOIN durable.runs pending ON pending.id = waiting.run_id
            WHERE waiting.lane = steps.lane
              AND waiting.due_at >= steps.mark
              AND waiting.due_at <= now()
            ORDER BY waiting.due_at, waiting.run_id
            OFFSET steps.skip
            LIMIT steps.take
            FOR NO KEY UPDATE OF waiting, pending SKIP LOCKED
        ) due
        WHERE NOT EXISTS (
            SELECT
            FROM durable.lanes
            WHERE lanes.id = abs(steps.lane)
              AND lanes.paused
        )
        LIMIT @most
    ))
    RETURNING run_id
), granted AS (
    INSERT INTO durable.leases (
        claim_id, worker, acquired_at, expires_at, duration, alone, run_ids
    )
    SELECT
        @claim_id::uuid,
        @worker::int,
        now(),
        now() + (@duration::bigint) * interval '1 microsecond',
        @duration::bigint,
        @alone::boolean,
        array_agg(taken.run_id)
    FROM taken
    HAVING count(*) > 0
)
UPDATE durable.runs
SET state = durable.running(),
    claim_id = @claim_id::uuid,
    worker = @worker::int,
    attempt = attempt + 1,
    started_at = now(),
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
  AND state = durable.pending()
RETURNING
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    coalesce(expires_at <= now(), false)::boolean AS expired,
    trace, key, schedule, occurs_at, tags,
    metadata::text AS metadata,
    args::text AS args,
    (links IS NOT NULL)::boolean AS linked,
    (SELECT count(*) FROM taken)::int AS dealt;

-- name: ClaimedRuns :many
-- The answer to a claim that has been given its runs before.
-- Index: leases_pkey, runs_pkey. Locks: none.
SELECT
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    coalesce(expires_at <= now(), false)::boolean AS expired,
    trace, key, schedule, occurs_at, tags,
    metadata::text AS metadata,
    args::text AS args,
    (links IS NOT NULL)::boolean AS linked,
    0::int AS dealt
FROM durable.runs
WHERE id = ANY (ARRAY(
        SELECT unnest(leases.run_ids)
        FROM durable.leases
        WHERE leases.claim_id = @claim_id::uuid
    ))
  AND claim_id = @claim_id::uuid
  AND state = durable.running();

-- name: RefuseClaim :exec
-- Keeps a claim whose answer was lost from succeeding later. Waits for a claim of this
-- id that is under way; where there is none, inserts a lease of no runs: the claim,
-- should it still arrive, is refused (23505) until that lease expires and is reclaimed
-- with nothing in it.
-- Index: leases_pkey. Idempotent: a repeat finds the row and inserts nothing.
INSERT INTO durable.leases (
    claim_id, worker, acquired_at, expires_at, duration, alone, run_ids
)
VALUES (
    @claim_id::uuid,
    @worker::int,
    now(),
    now() + (@duration::bigint) * interval '1 microsecond',
    @duration::bigint,
    @alone::boolean,
    '{}'
)
ON CONFLICT DO NOTHING;

-- name: HeldRuns :many
-- The runs that still belong to a claim.
-- Index: leases_pkey, runs_pkey. Locks: none.
SELECT id
FROM durable.runs
WHERE id = ANY (ARRAY(
        SELECT unnest(leases.run_ids)
        FROM durable.leases
        WHERE leases.claim_id = @claim_id::uuid
    ))
  AND claim_id = @claim_id::uuid
  AND state = durable.running();

-- name: Leased :one
-- Whether a claim has a lease. Index: leases_pkey. Locks: none.
SELECT EXISTS (
    SELECT
    FROM durable.leases
    WHERE leases.claim_id = @claim_id::uuid
)::boolean AS leased;

-- name: Undealt :many
-- Runs that a lease names and that do not belong to its claim.
-- Index: leases_pkey, runs_pkey. Locks: none.
SELECT named.id::uuid AS id
FROM (
    SELECT unnest(leases.run_ids) AS id
    FROM durable.leases
    WHERE leases.claim_id = @claim_id::uuid
) named
WHERE NOT EXISTS (
    SELECT
    FROM durable.runs
    WHERE runs.id = named.id
      AND runs.claim_id = @claim_id::uuid
      AND runs.state = durable.running()
);

-- name: RegisterWorker :one
-- Index: workers_instance_key. Locks: its own row. A known worker uses up no number:
-- ON CONFLICT alone would take one each hour.
-- Idempotent: a repeat returns the same row.
WITH known AS (
    UPDATE durable.workers
    SET seen_at = now(),
        version = @version::int
    WHERE instance = @instance::uuid
    RETURNING id
), registered AS (
    INSERT INTO durable.workers (instance, name, version)
    SELECT @instance::uuid, @name::text, @version::int
    WHERE NOT EXISTS (SELECT FROM known)
    ON CONFLICT (instance) DO UPDATE
    SET seen_at = now()
    RETURNING id
)
SELECT id FROM known
UNION ALL
SELECT id FROM registered;

-- name: TouchWorker :execrows
-- No rows: the worker is not stored. Index: workers_instance_key. Locks: its own row.
-- Idempotent: a repeat updates the same row.
UPDATE durable.workers
SET seen_at = now()
WHERE instance = @instance;

-- name: ScheduleNames :many
-- The names of schedules, once for each that a claim has met; of a deleted one, that which
-- its runs have. Index: schedules_pkey, runs_schedule. Locks: none.
SELECT
    given.id::int AS id,
    coalesce(
        (
            SELECT schedules.name
            FROM durable.schedules
            WHERE schedules.id = given.id
        ),
        (
            SELECT runs.schedule_name
            FROM durable.runs
            WHERE runs.schedule = given.id
            LIMIT 1
        ),
        ''
    )::text AS name
FROM (SELECT unnest(@ids::int[]) AS id) given;
