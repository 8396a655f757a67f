-- name: EnqueueRuns :many
-- Stores runs and their rows of ready; returns the ids that were stored before.
-- Index: runs_pkey, lanes_pkey. Locks: only what it inserts.
-- Idempotent: a run whose id is stored is skipped, gets no second row in ready,
-- and its id is returned; where none is stored, nothing is compared.
-- A lane number that no longer names the lane it was learnt as (queue, job, priority)
-- becomes NULL and fails the whole statement (23502). metadata and traces are NULL when
-- no run has any: unnest then yields no rows, and NULL is filled in beside the others.
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
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, trace
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
        given.metadata::json,
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
            pg_catalog.unnest(@metadata::text[]) AS metadata,
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
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, trace
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
        (@metadata::text)::json,
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
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, trace
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
        (@metadata::text)::json,
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

-- name: EnqueueLimited :many
-- EnqueueRuns for limited runs, with what any of them may have beside: a unique key, which
-- the transaction has locked, or a schedule. They wait in the lines of their gates, and a
-- turn on the line of their lane says so. Returns the ids that it stored.
-- A run that is new has no permit yet, so its line is that of its first gate. That it does
-- not look for one keeps the estimate for thousands of runs below the cost from which the
-- server compiles a statement, which takes it a second; enqueues have no guard against that.
-- Index: runs_pkey, lanes_pkey, limits_pkey, limit_lanes_pkey. Locks: only what it inserts,
-- and so no gate: the caller's transaction may be long.
-- Idempotent: a run whose id is stored is skipped.
-- The number of a lane, or of a limit, that is no longer that of its name becomes NULL and
-- fails the statement (23502), and so does that of a limit that was removed and that no code
-- declares, and a line that workers do not read, whose row of limit_lanes is missing.
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
), unknown AS MATERIALIZED (
    SELECT learnt.id
    FROM (
        SELECT
            pg_catalog.unnest(@limit_ids::int[]) AS id,
            pg_catalog.unnest(@limit_names::text[]) AS name,
            pg_catalog.unnest(@limit_secrets::uuid[]) AS secret
    ) learnt
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limits
        WHERE limits.id = learnt.id
          AND limits.name = learnt.name
          AND coalesce(limits.secret, '00000000-0000-0000-0000-000000000000') = learnt.secret
          AND (limits.state <> durable.limit_removed() OR limits.declared_at IS NOT NULL)
    )
    UNION ALL
    SELECT read.id
    FROM (
        SELECT
            pg_catalog.unnest(@line_limits::int[]) AS id,
            pg_catalog.unnest(@line_lanes::int[]) AS lane
    ) read
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes
        WHERE limit_lanes.limit_id = read.id
          AND limit_lanes.lane = read.lane
    )
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, key,
        trace, schedule, generation, occurrence, occurs_at, schedule_name, gates, limits, weights,
        strict, gives
    )
    SELECT
        given.id,
        CASE
            WHEN given.lane = ANY (ARRAY(SELECT known.id FROM known))
                AND NOT EXISTS (SELECT FROM unknown)
                THEN given.lane
        END,
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
        given.metadata::json,
        nullif(given.name, ''),
        given.trace,
        nullif(given.schedule, 0),
        CASE WHEN given.schedule > 0 THEN given.generation END,
        given.occurrence,
        given.occurs_at,
        given.schedule_name,
        given.gates::bigint[],
        given.limits::text[],
        given.weights::int[],
        given.strict::bigint[],
        given.gives::text[]
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
            pg_catalog.unnest(@metadata::text[]) AS metadata,
            pg_catalog.unnest(@keys::text[]) AS name,
            pg_catalog.unnest(@traces::text[]) AS trace,
            pg_catalog.unnest(@schedules::int[]) AS schedule,
            pg_catalog.unnest(@generations::bigint[]) AS generation,
            pg_catalog.unnest(@occurrences::text[]) AS occurrence,
            pg_catalog.unnest(@occurs_ats::text[]) AS occurs_at,
            pg_catalog.unnest(@schedule_names::text[]) AS schedule_name,
            pg_catalog.unnest(@gates::text[]) AS gates,
            pg_catalog.unnest(@limits::text[]) AS limits,
            pg_catalog.unnest(@weights::text[]) AS weights,
            pg_catalog.unnest(@strict::text[]) AS strict,
            pg_catalog.unnest(@gives::text[]) AS gives
    ) given
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at, gates, limits
), lined AS (
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        coalesce(stored.gates[1], durable.all_permits()),
        stored.lane,
        stored.due_at,
        stored.id,
        pg_catalog.cardinality(stored.gates) <> 1
            OR pg_catalog.cardinality(stored.limits) <> 1
            OR durable.says_more(stored.limits[1])
    FROM stored
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
)
SELECT stored.id
FROM stored;
