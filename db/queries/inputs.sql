-- name: KeyHolder :many
-- The run that holds a unique key and has not ended.
-- Index: unique_keys_pkey, runs_pkey. Locks: none.
SELECT runs.id
FROM durable.unique_keys
JOIN durable.runs ON runs.id = unique_keys.run_id
WHERE unique_keys.job = @job::text
  AND unique_keys.key = @key::text
  AND durable.is_unfinished(runs.state);

-- name: SendInput :many
-- Stores an input of a run that has not ended, and a notice of it. A row: the run is there; its
-- state, how many inputs and bytes it has without this one, and whether this one is stored.
-- Index: runs_pkey, inputs_pkey. Locks: what it inserts; waits for a transaction that sends the
-- same name to the same run, or gives it up.
-- Idempotent: a repeat finds the input.
WITH had AS MATERIALIZED (
    SELECT
        pg_catalog.count(inputs.size) AS number,
        CAST(coalesce(pg_catalog.sum(inputs.size), 0) AS bigint) AS bytes
    FROM durable.inputs
    WHERE inputs.run_id = @run_id::uuid
), sent AS (
    INSERT INTO durable.inputs (run_id, size, name, sender, digest, value)
    SELECT
        runs.id,
        pg_catalog.octet_length(@payload::text),
        @name::text,
        nullif(@by_whom::text, ''),
        @digest::text,
        (@payload::text)::json
    FROM durable.runs
    CROSS JOIN had
    WHERE runs.id = @run_id::uuid
      AND durable.is_unfinished(runs.state)
      AND had.number < @most::int
      AND had.bytes + pg_catalog.octet_length(@payload::text) <= @bytes_most::bigint
    ON CONFLICT DO NOTHING
    RETURNING run_id
), noticed AS (
    INSERT INTO durable.notices (run_id, name)
    SELECT sent.run_id, @name::text
    FROM sent
)
SELECT
    runs.state,
    had.number,
    had.bytes,
    EXISTS (SELECT FROM sent)::boolean AS stored
FROM durable.runs
CROSS JOIN had
WHERE runs.id = @run_id::uuid;

-- name: DigestOf :many
-- What tells the input of a name from others, without its value: who sends inputs may not read
-- them. Empty: the run has given up.
-- Index: inputs_pkey. Locks: none.
SELECT coalesce(digest, '')::text AS digest
FROM durable.inputs
WHERE run_id = @run_id::uuid
  AND name = @name::text;

-- name: TakeNotices :many
-- Takes the notices that are due, from an instant on. They come back when the transaction is
-- rolled back. Where a transaction holds an old snapshot, a take from the beginning steps over all
-- that were taken before.
-- Index: notices_order. Locks: the notices, with SKIP LOCKED.
-- Idempotent: a repeat takes others.
DELETE FROM durable.notices
WHERE ctid = ANY (ARRAY(
    SELECT due.ctid
    FROM durable.notices due
    WHERE due.due_at >= @since::timestamptz
      AND due.due_at <= (SELECT clock_timestamp())
    ORDER BY due.due_at, due.id
    LIMIT @most::int
    FOR UPDATE SKIP LOCKED
))
RETURNING run_id, kind, name, tries, cursor;

-- name: NextNotice :many
-- The time, and when the first notice from an instant on is due.
-- Index: notices_order. Locks: none.
SELECT
    clock_timestamp()::timestamptz AS now,
    (
        SELECT notices.due_at
        FROM durable.notices
        WHERE notices.due_at >= @since::timestamptz
        ORDER BY notices.due_at
        LIMIT 1
    ) AS due_at;

-- name: Arrived :many
-- Those of inputs that runs have begun to wait for which are there.
-- Index: inputs_pkey. Locks: none.
SELECT asked.run_id::uuid AS run_id, asked.name::text AS name
FROM (
    SELECT unnest(@runs::uuid[]) AS run_id, unnest(@names::text[]) AS name
) asked
WHERE EXISTS (
    SELECT
    FROM durable.inputs
    WHERE inputs.run_id = asked.run_id
      AND inputs.name = asked.name
      AND inputs.digest IS NOT NULL
);

-- name: LockNoticed :many
-- Locks the pending ones of runs, each with its row of ready or of waiting, and says what the
-- others are: ended, or to be looked at later. What a later statement of the transaction reads
-- of those that are locked cannot change.
-- Index: runs_pkey, ready_order, waiting_order, one probe for each run. Locks: as CancelPending
-- and CancelWaiting, with SKIP LOCKED.
-- Idempotent: a repeat returns the same rows.
WITH asked AS MATERIALIZED (
    SELECT runs.id, runs.lane, runs.due_at, runs.state, runs.gates
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
), queued AS MATERIALIZED (
    SELECT locked.id
    FROM asked,
    LATERAL (
        SELECT pending.id
        FROM durable.ready place
        JOIN durable.runs pending ON pending.id = place.run_id
        WHERE place.lane = asked.lane
          AND place.due_at = asked.due_at
          AND place.run_id = asked.id
        FOR NO KEY UPDATE OF place, pending SKIP LOCKED
    ) locked
    WHERE asked.state = durable.pending()
      AND asked.gates IS NULL
), lined AS MATERIALIZED (
    SELECT locked.id
    FROM asked,
    LATERAL (
        SELECT pending.id
        FROM durable.runs pending
        JOIN durable.waiting place ON place.gate = ANY (
                pending.gates || durable.all_permits()::bigint
            )
            AND place.run_id = pending.id
        WHERE pending.id = asked.id
          AND place.lane = asked.lane
          AND place.due_at = asked.due_at
        FOR NO KEY UPDATE OF place, pending SKIP LOCKED
    ) locked
    WHERE asked.state = durable.pending()
      AND asked.gates IS NOT NULL
)
SELECT
    asked.id,
    asked.state,
    (
        asked.id = ANY (ARRAY(SELECT queued.id FROM queued))
        OR asked.id = ANY (ARRAY(SELECT lined.id FROM lined))
    )::boolean AS locked,
    asked.lane,
    asked.due_at,
    (asked.gates IS NOT NULL)::boolean AS limited
FROM asked;

-- name: Awaiting :many
-- After LockNoticed in its transaction: those of the runs that are due later, and wait for the
-- input named with them. A run that has nothing else to wait for is one too, although no wait is
-- recorded: a failover may have taken that back, and not the outcome that it belonged to.
-- Index: runs_pkey, steps_pkey, inputs_pkey. Locks: none.
SELECT asked.run_id::uuid AS run_id
FROM (
    SELECT unnest(@runs::uuid[]) AS run_id, unnest(@names::text[]) AS name
) asked
JOIN durable.runs ON runs.id = asked.run_id
WHERE runs.state = durable.pending()
  AND runs.due_at > clock_timestamp()
  AND (
      EXISTS (
          SELECT
          FROM durable.steps
          WHERE steps.run_id = asked.run_id
            AND steps.name = asked.name
            AND steps.kind = durable.step_input()
      )
      OR (
          runs.started_at IS NOT NULL
          AND runs.attempt = 0
          AND NOT EXISTS (
              SELECT
              FROM durable.steps
              WHERE steps.run_id = asked.run_id
                AND steps.kind IN (
                    durable.step_sleep(), durable.step_input(), durable.step_children()
                )
                AND coalesce(steps.until, 'infinity') > clock_timestamp()
                AND NOT EXISTS (
                    SELECT
                    FROM durable.inputs
                    WHERE inputs.run_id = steps.run_id
                      AND inputs.name = steps.name
                )
          )
      )
  );

-- name: ReleaseReady :many
-- After LockNoticed in its transaction, for runs that it has locked: makes them due now. How many
-- runs of each lane were released.
-- Index: runs_pkey, ready_order. Locks: none that the transaction does not have, but inserts.
-- Idempotent: a repeat moves them to the same place.
WITH unqueued AS (
    DELETE FROM durable.ready
    USING durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.state = durable.pending()
      AND runs.gates IS NULL
      AND ready.lane = runs.lane
      AND ready.due_at = runs.due_at
      AND ready.run_id = runs.id
    RETURNING ready.run_id
), released AS (
    UPDATE durable.runs
    SET due_at = clock_timestamp()
    WHERE id = ANY (ARRAY(SELECT unqueued.run_id FROM unqueued))
      AND state = durable.pending()
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of released
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT released.lane, released.due_at, released.id
    FROM released
-- end
)
SELECT released.lane, count(*) AS runs
FROM released
GROUP BY released.lane;

-- name: ReleaseWaiting :many
-- ReleaseReady for limited runs, which wait in the lines of their gates.
-- Index: runs_pkey, waiting_order. Locks and idempotence: as ReleaseReady.
WITH unlined AS (
    DELETE FROM durable.waiting
    USING durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.state = durable.pending()
      AND runs.gates IS NOT NULL
      AND waiting.gate = ANY (runs.gates || durable.all_permits()::bigint)
      AND waiting.lane = runs.lane
      AND waiting.due_at = runs.due_at
      AND waiting.run_id = runs.id
    RETURNING waiting.run_id
), released AS (
    UPDATE durable.runs
    SET due_at = clock_timestamp()
    WHERE id = ANY (ARRAY(SELECT unlined.run_id FROM unlined))
      AND state = durable.pending()
    RETURNING id, lane, due_at, gates, limits, strict
), listed AS (
-- block: read-lines of released
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), released.lane
    FROM released
    CROSS JOIN LATERAL pg_catalog.unnest(released.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = released.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), lined AS (
-- block: enter-waiting of released
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(released.id, released.gates, released.strict),
        released.lane,
        released.due_at,
        released.id,
        durable.is_more(released.gates, released.limits)
    FROM released
-- end
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
)
SELECT released.lane, count(*) AS runs
FROM released
GROUP BY released.lane;

-- name: PutBackNotices :exec
-- Has notices looked at again, each after its pause in microseconds.
-- Index: none. Locks: what it inserts. Idempotent: a notice too many is harmless.
INSERT INTO durable.notices (due_at, run_id, kind, tries, name, cursor)
SELECT
    clock_timestamp() + back.pause * interval '1 microsecond',
    back.run_id,
    back.kind,
    back.tries,
    back.name,
    nullif(back.after, '')::uuid
FROM (
    SELECT
        unnest(@runs::uuid[]) AS run_id,
        unnest(@kinds::smallint[]) AS kind,
        unnest(@tries::smallint[]) AS tries,
        unnest(@pauses::bigint[]) AS pause,
        unnest(@names::text[]) AS name,
        unnest(@cursors::text[]) AS after
) back;
