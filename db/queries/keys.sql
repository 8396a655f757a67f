-- name: InsertKeys :exec
-- Index: unique_keys_pkey. Locks: only what it inserts, in the order given, which is the
-- same for all callers; waits for a transaction that has just inserted the same key.
-- Idempotent: conflicts are skipped, without a dead row.
-- As below, clock_timestamp() is the enqueue's time where now() may be the beginning of
-- a caller's long transaction.
INSERT INTO durable.unique_keys (job, key, run_id, latest, held_to)
SELECT
    given.job,
    given.name,
    given.id,
    given.id,
    CASE
        WHEN given.micros > 0
            THEN clock_timestamp() + given.micros::float8 * interval '1 microsecond'
    END
FROM (
    SELECT
        pg_catalog.unnest(@jobs::text[]) AS job,
        pg_catalog.unnest(@keys::text[]) AS name,
        pg_catalog.unnest(@run_ids::uuid[]) AS id,
        pg_catalog.unnest(@held_fors::bigint[]) AS micros
) given
ON CONFLICT DO NOTHING;

-- name: LockKeys :many
-- Index: unique_keys_pkey, one probe per key: a subquery that locks is not merged into
-- a join. Locks: the rows in the order given, and waits for their holders, so that the
-- statements after it see what those have committed. A row that its holder has deleted
-- is not returned, and nothing is locked in its place.
SELECT locked.run_id
FROM (
    SELECT
        pg_catalog.unnest(@jobs::text[]) AS job,
        pg_catalog.unnest(@keys::text[]) AS name
) given,
LATERAL (
    SELECT unique_keys.run_id
    FROM durable.unique_keys
    WHERE unique_keys.job = given.job
      AND unique_keys.key = given.name
    FOR UPDATE
) locked;

-- name: KeyHolders :many
-- A pending holder that has begun (rules.StateForKey) counts as one that is running.
-- Index: unique_keys_pkey, runs_pkey, steps_pkey, inputs_pkey, one probe each per key (OFFSET
-- keeps it so).
-- Locks: none; the keys are locked, and of a holder's state only that it has ended is
-- final. A key whose row is gone is not returned. Frozen says that the transaction reads
-- from its snapshot, in which a holder may have a state that is no longer its own: see
-- RefuseChanged.
SELECT
    held_key.job,
    held_key.key,
    held_key.run_id,
    held_key.latest,
    held_key.held,
    (holder.id IS NOT NULL)::boolean AS stored,
    CASE
        WHEN holder.begun THEN durable.running()
        ELSE coalesce(holder.state, durable.pending())
    END::smallint AS state,
    coalesce(holder.lane, 0)::int AS lane,
    coalesce(holder.due_at, 'epoch')::timestamptz AS due_at,
    coalesce(holder.gates::text, '')::text AS gates,
    (
        pg_catalog.current_setting('transaction_isolation')
        IN ('repeatable read', 'serializable')
    )::boolean AS frozen
FROM (
    SELECT
        pg_catalog.unnest(@jobs::text[]) AS job,
        pg_catalog.unnest(@keys::text[]) AS name
) given
CROSS JOIN LATERAL (
    SELECT
        unique_keys.job,
        unique_keys.key,
        unique_keys.run_id,
        unique_keys.latest,
        coalesce(unique_keys.held_to > clock_timestamp(), false)::boolean AS held
    FROM durable.unique_keys
    WHERE unique_keys.job = given.job
      AND unique_keys.key = given.name
    OFFSET 0
) held_key
LEFT JOIN LATERAL (
    SELECT
        runs.id,
        runs.state,
        runs.lane,
        runs.due_at,
        runs.gates,
        (
            runs.state = durable.pending()
            AND (
                EXISTS (SELECT FROM durable.steps WHERE steps.run_id = runs.id)
                OR EXISTS (SELECT FROM durable.inputs WHERE inputs.run_id = runs.id)
                OR EXISTS (SELECT FROM durable.edges WHERE edges.waiter = runs.id)
            )
        ) AS begun
    FROM durable.runs
    WHERE runs.id = held_key.run_id
    OFFSET 0
) holder ON true;

-- name: RefuseChanged :exec
-- For a transaction that reads from a snapshot: fails (40001) if a run has changed since
-- then. A run that another transaction is changing now has not changed yet, and is skipped.
-- Between BeginLook and UndoLook, which gives the locks back: they would be in the way of
-- the run's own worker until the caller's transaction ends.
-- Index: runs_pkey. Locks: the runs, shared, with SKIP LOCKED.
-- Idempotent: a repeat finds the same.
SELECT id
FROM durable.runs
WHERE id = ANY (@ids::uuid[])
FOR SHARE SKIP LOCKED;

-- name: BeginLook :exec
-- What follows is undone in the caller's transaction, which may have savepoints of its
-- own: one of the same name would only be hidden meanwhile.
SAVEPOINT durable_look;

-- name: UndoLook :exec
ROLLBACK TO SAVEPOINT durable_look;

-- name: EndLook :exec
RELEASE SAVEPOINT durable_look;

-- name: StoredRuns :many
-- Which of the runs are stored already. Index: runs_pkey. Locks: none.
SELECT id
FROM durable.runs
WHERE id = ANY (@ids::uuid[]);

-- name: TakeReady :many
-- Takes a pending run out of its line, and waits for a claim that has locked its row:
-- no row is returned when that claim has taken it.
-- Index: ready_order. Locks: the row. Idempotent: a repeat returns no row.
DELETE FROM durable.ready
WHERE lane = @lane::int
  AND due_at = @due_at::timestamptz
  AND run_id = @run_id::uuid
RETURNING run_id;

-- name: TakeWaiting :many
-- TakeReady for a limited run, which waits in the line of one of its gates, or of none.
-- One that wanted more than one place may have been in the way of others: see CancelWaiting.
-- Freed are the lines of its turns, as computed: producers may insert turns, not read them.
-- Index: waiting_order, a probe for each gate. Locks and idempotence: as TakeReady.
WITH taken AS (
    DELETE FROM durable.waiting
    WHERE gate = ANY (
            (@gates::text)::bigint[] OPERATOR(pg_catalog.||) durable.all_permits()::bigint
        )
      AND lane = @lane::int
      AND due_at = @due_at::timestamptz
      AND run_id = @run_id::uuid
    RETURNING run_id, gate, more
), touched AS (
    SELECT taken.gate FROM taken WHERE taken.more AND taken.gate <> durable.all_permits()
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
)
SELECT
    taken.run_id,
    ARRAY(
        SELECT DISTINCT durable.line_of_gate(touched.gate)
        FROM touched
    )::int[] AS freed
FROM taken;

-- name: ReplaceRun :many
-- Gives a pending run what a later enqueue with the same key has, and a new place in
-- line; an isolated run stays isolated. What an attempt has noted for the next one was
-- about other args and is deleted, and so are the permits of gates that it had and kept.
-- Freed are the lines of the turns for those, as in TakeWaiting.
-- Index: runs_pkey, lanes_pkey, progress_pkey. Locks: the run; the transaction has
-- deleted its row of ready, so no other one changes it.
-- A lane number that no longer names the lane it was learnt as becomes NULL and fails
-- (23502), and so do a limit and a line that are not there any more, as in EnqueueLimited.
-- The run is due at its instant, or after so many microseconds where that is
-- null, but no later than at_most after it was first stored (0: no bound).
WITH replaced AS (
    UPDATE durable.runs
    SET lane = (
            SELECT CASE WHEN runs.lane < 0 THEN -lanes.id ELSE lanes.id END
            FROM durable.lanes
            WHERE lanes.id = @lane::int
              AND lanes.queue = @queue::text
              AND lanes.job = @job::text
              AND lanes.priority = @priority::smallint
              AND NOT EXISTS (
                  SELECT
                  FROM (
                      SELECT
                          pg_catalog.unnest((@limit_ids::text)::int[]) AS id,
                          pg_catalog.unnest((@limit_names::text)::text[]) AS name,
                          pg_catalog.unnest((@limit_secrets::text)::uuid[]) AS secret
                  ) learnt
                  WHERE NOT EXISTS (
                      SELECT
                      FROM durable.limits
                      JOIN durable.limit_lanes ON limit_lanes.limit_id = limits.id
                          AND limit_lanes.lane = @lane::int
                      WHERE limits.id = learnt.id
                        AND limits.name = learnt.name
                        AND coalesce(
                            limits.secret, '00000000-0000-0000-0000-000000000000'
                        ) = learnt.secret
                        AND (
                            limits.state <> durable.limit_removed()
                            OR limits.declared_at IS NOT NULL
                        )
                  )
              )
        ),
        due_at = least(
            coalesce(
                @at::timestamptz,
                clock_timestamp() + (@after::bigint)::float8 * interval '1 microsecond'
            ),
            CASE
                WHEN @at_most::bigint > 0
                    THEN created_at + (@at_most::bigint)::float8 * interval '1 microsecond'
            END
        ),
        timeout = nullif(@timeout::bigint, 0),
        expires_at = @expires_at::timestamptz,
        max_attempts = @max_attempts::int,
        on_crash = @on_crash::smallint,
        args = (@args::text)::json,
        tags = (@tags::text)::text[],
        metadata = (@metadata::text)::json,
        trace = @trace::text,
        attempt = 0,
        occurs_at = NULL,
        gates = (@gates::text)::bigint[],
        limits = (@limits::text)::text[],
        weights = (@weights::text)::int[],
        strict = (@strict::text)::bigint[],
        gives = (@gives::text)::text[]
    WHERE id = @id::uuid
      AND state = durable.pending()
    RETURNING id, lane, due_at, gates, limits, strict
), forgotten AS (
    DELETE FROM durable.progress
    WHERE run_id = @id::uuid
), listed AS (
-- block: read-lines of replaced
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), replaced.lane
    FROM replaced
    CROSS JOIN LATERAL pg_catalog.unnest(replaced.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = replaced.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), queued AS (
-- block: enter-line of replaced
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT replaced.lane, replaced.due_at, replaced.id
    FROM replaced
-- end
    WHERE replaced.gates IS NULL
), lined AS (
-- block: enter-waiting of replaced
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(replaced.id, replaced.gates, replaced.strict),
        replaced.lane,
        replaced.due_at,
        replaced.id,
        durable.is_more(replaced.gates, replaced.limits)
    FROM replaced
-- end
    WHERE replaced.gates IS NOT NULL
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
), dropped AS (
    DELETE FROM durable.permits
    WHERE gate = ANY ((@had::text)::bigint[])
      AND owner = @id::uuid
    RETURNING gate
), freed AS (
-- block: free of dropped
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT dropped.gate FROM dropped) freed
-- end
)
SELECT
    replaced.id,
    ARRAY(
        SELECT DISTINCT durable.line_of_gate(dropped.gate)
        FROM dropped
    )::int[] AS freed
FROM replaced;

-- name: EnqueueKeyedRuns :many
-- EnqueueRuns for runs of which some have keys, which the transaction has locked.
-- Returns the ids that it stored.
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
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, key,
        trace
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
        nullif(given.name, ''),
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
            pg_catalog.unnest(@keys::text[]) AS name,
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
SELECT stored.id
FROM stored;

-- name: SetKey :exec
-- Gives a key to a holder, for so many microseconds after its end (0: none). A holder
-- that is only replaced keeps its time.
-- Index: unique_keys_pkey. Locks: a row that the transaction has locked.
UPDATE durable.unique_keys
SET held_to = CASE
        WHEN run_id = @run_id::uuid
            THEN held_to
        WHEN @held_for::bigint > 0
            THEN clock_timestamp() + (@held_for::bigint)::float8 * interval '1 microsecond'
    END,
    run_id = @run_id::uuid,
    latest = @latest::uuid
WHERE job = @job::text
  AND key = @key::text;

-- name: EnqueueNewKeyed :many
-- EnqueueAlike for runs of which some have keys, each one its own, that are most likely
-- free. The keys are empty where a run has none. Unless all keys are free no run is
-- stored; a run that is stored already is skipped. When fewer ids are returned than
-- there are runs, the transaction has the keys that were free, and has to ask for the
-- others.
-- Index: unique_keys_pkey, runs_pkey, lanes_pkey. Locks: only what it inserts, the keys
-- first and in the order in which all callers lock them; waits for a transaction that
-- has just inserted the same key.
-- Idempotent: a repeat skips what is there.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM durable.lanes
    WHERE lanes.id = @lane::int
      AND lanes.queue = @queue::text
      AND lanes.job = @job::text
      AND lanes.priority = @priority::smallint
), free_keys AS (
    INSERT INTO durable.unique_keys (job, key, run_id, latest, held_to)
    SELECT
        @job::text,
        given.name,
        given.id,
        given.id,
        CASE
            WHEN @held_for::bigint > 0
                THEN clock_timestamp() + (@held_for::bigint)::float8 * interval '1 microsecond'
        END
    FROM (
        SELECT
            pg_catalog.unnest(@ids::uuid[]) AS id,
            pg_catalog.unnest(@keys::text[]) AS name
    ) given
    WHERE given.name <> ''
    ORDER BY given.name COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING run_id
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata, trace,
        key
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
        @trace::text,
        nullif(given.name, '')
    FROM (
        SELECT
            pg_catalog.unnest(@ids::uuid[]) AS id,
            pg_catalog.unnest(@args::text[]) AS args,
            pg_catalog.unnest(@keys::text[]) AS name
    ) given
    WHERE (SELECT count(*) FROM free_keys)
        = pg_catalog.cardinality(pg_catalog.array_remove(@keys::text[], ''))
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of stored
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT stored.lane, stored.due_at, stored.id
    FROM stored
-- end
)
SELECT stored.id
FROM stored;
