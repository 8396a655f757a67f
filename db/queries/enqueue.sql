-- name: EnqueueRuns :many
-- Stores runs and their rows of ready; returns the ids that were stored before.
-- Index: runs_pkey, lanes_pkey. Locks: only what it inserts.
-- Idempotent: a run whose id is stored is passed over, gets no second row in ready,
-- and its id is returned; where none is stored, nothing is compared.
-- A lane number that no longer names the lane it was learnt as (queue, job, priority)
-- becomes NULL and fails the whole statement (23502). traces is NULL when no run has
-- one: unnest then yields no rows, and NULL is filled in beside the others.
-- In a long transaction of the caller's now() would be its beginning, so the
-- statement's time counts. A run is due at its instant, or after so many microseconds
-- where that is null; a timeout of 0 is none.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM (
        SELECT
            pg_catalog.unnest(@known::int[]) AS id,
            pg_catalog.unnest(@queues::text[]) AS queue,
            pg_catalog.unnest(@jobs::text[]) AS job,
            pg_catalog.unnest(@priorities::smallint[]) AS priority
    ) learnt
    JOIN durable.lanes ON lanes.id = learnt.id
        AND lanes.queue = learnt.queue
        AND lanes.job = learnt.job
        AND lanes.priority = learnt.priority
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace
    )
    SELECT
        given.id,
        CASE WHEN given.lane = ANY (ARRAY(SELECT known.id FROM known)) THEN given.lane END,
        coalesce(
            given.at,
            statement_timestamp() + given.after::float8 * interval '1 microsecond'
        ),
        given.expires_at,
        nullif(given.timeout, 0),
        given.max_attempts,
        given.on_crash,
        given.args::json,
        given.tags::text[],
        given.trace
    FROM (
        SELECT
            pg_catalog.unnest(@ids::uuid[]) AS id,
            pg_catalog.unnest(@lanes::int[]) AS lane,
            pg_catalog.unnest(@ats::timestamptz[]) AS at,
            pg_catalog.unnest(@afters::bigint[]) AS after,
            pg_catalog.unnest(@expiries::timestamptz[]) AS expires_at,
            pg_catalog.unnest(@timeouts::bigint[]) AS timeout,
            pg_catalog.unnest(@max_attempts::int[]) AS max_attempts,
            pg_catalog.unnest(@on_crashes::smallint[]) AS on_crash,
            pg_catalog.unnest(@args::text[]) AS args,
            pg_catalog.unnest(@tags::text[]) AS tags,
            pg_catalog.unnest(@traces::text[]) AS trace
    ) given
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of stored
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT stored.lane, stored.due_at, stored.id
    FROM stored
-- end
)
SELECT asked.id::uuid AS id
FROM (SELECT pg_catalog.unnest(@ids::uuid[]) AS id) asked
WHERE (SELECT count(*) FROM stored) < pg_catalog.cardinality(@ids::uuid[])
  AND asked.id NOT IN (SELECT stored.id FROM stored);

-- name: EnqueueAlike :many
-- EnqueueRuns for runs of one lane that differ in nothing but their ids and args,
-- which is the common case: half of the time of EnqueueRuns goes into arrays that
-- repeat the same value for every run.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM durable.lanes
    WHERE lanes.id = @lane::int
      AND lanes.queue = @queue::text
      AND lanes.job = @job::text
      AND lanes.priority = @priority::smallint
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace
    )
    SELECT
        given.id,
        (SELECT known.id FROM known),
        coalesce(
            @at::timestamptz,
            statement_timestamp() + (@after::bigint)::float8 * interval '1 microsecond'
        ),
        @expires_at::timestamptz,
        nullif(@timeout::bigint, 0),
        @max_attempts::int,
        @on_crash::smallint,
        given.args::json,
        (@tags::text)::text[],
        @trace::text
    FROM (
        SELECT
            pg_catalog.unnest(@ids::uuid[]) AS id,
            pg_catalog.unnest(@args::text[]) AS args
    ) given
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of stored
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT stored.lane, stored.due_at, stored.id
    FROM stored
-- end
)
SELECT asked.id::uuid AS id
FROM (SELECT pg_catalog.unnest(@ids::uuid[]) AS id) asked
WHERE (SELECT count(*) FROM stored) < pg_catalog.cardinality(@ids::uuid[])
  AND asked.id NOT IN (SELECT stored.id FROM stored);

-- name: EnqueueNew :exec
-- EnqueueAlike for runs that are most likely not stored yet: without ON CONFLICT an
-- index entry is neither looked up nor announced before it is written, and no record
-- of the WAL confirms it; that saves a quarter of the time.
-- Index: runs_pkey, lanes_pkey. Locks: only what it inserts.
-- Idempotent: a repeat violates runs_pkey (23505) and changes nothing; EnqueueAlike
-- then says which runs were stored.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM durable.lanes
    WHERE lanes.id = @lane::int
      AND lanes.queue = @queue::text
      AND lanes.job = @job::text
      AND lanes.priority = @priority::smallint
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace
    )
    SELECT
        given.id,
        (SELECT known.id FROM known),
        coalesce(
            @at::timestamptz,
            statement_timestamp() + (@after::bigint)::float8 * interval '1 microsecond'
        ),
        @expires_at::timestamptz,
        nullif(@timeout::bigint, 0),
        @max_attempts::int,
        @on_crash::smallint,
        given.args::json,
        (@tags::text)::text[],
        @trace::text
    FROM (
        SELECT
            pg_catalog.unnest(@ids::uuid[]) AS id,
            pg_catalog.unnest(@args::text[]) AS args
    ) given
    RETURNING id, lane, due_at
)
-- block: enter-line of stored
INSERT INTO durable.ready (lane, due_at, run_id)
SELECT stored.lane, stored.due_at, stored.id
FROM stored;
-- end
