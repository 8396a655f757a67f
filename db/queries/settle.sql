-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: SettleSuccesses :many
-- Ends runs that succeeded. The ids returned are the verdict.
-- Index: runs_pkey. Locks: the runs that still belong to the claim, in id order; waits
-- for a transaction that has locked one (a reclaim), and checks the condition again
-- afterwards. Idempotent: a repeat, or a late call, returns no rows.
UPDATE durable.runs
SET state = 2,
    finished_at = now()
WHERE id = ANY (@ids::uuid[])
  AND claim_id = @claim_id::uuid
  AND state = 1
RETURNING id;

-- name: SettleRuns :many
-- SettleSuccesses for every other outcome. A run that would be pending again is cancelled
-- where that was requested, as the locked row says. outcomes maps an id to [state,
-- microseconds until due again, attempts refunded, kind of outcome or null when not
-- recorded, error, stack, result as text, log lines, microseconds that the handler took or
-- null]: one map, because the planner is
-- unpredictable for unnest next to = ANY.
-- Index: runs_pkey. Locks: as SettleSuccesses, then inserts.
-- Idempotent: a repeat, or a late call, returns no rows.
WITH settled AS (
-- block: write-outcomes
    UPDATE durable.runs
    SET state = CASE
            WHEN cancel IS NOT NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0' THEN 5
            ELSE (@outcomes::jsonb -> (id::text) ->> 0)::smallint
        END,
        due_at = CASE
            WHEN cancel IS NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0'
                THEN now()
                    + (@outcomes::jsonb -> (id::text) ->> 1)::bigint * interval '1 microsecond'
            ELSE due_at
        END,
        attempt = attempt - (@outcomes::jsonb -> (id::text) ->> 2)::int,
        result = (@outcomes::jsonb -> (id::text) ->> 6)::json,
        finished_at = CASE
            WHEN cancel IS NOT NULL OR @outcomes::jsonb -> (id::text) ->> 0 <> '0' THEN now()
        END
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = 1
-- end
    RETURNING id, lane, state, due_at, attempt, fence, started_at, cancel
), queued AS (
-- block: enter-line of settled
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT settled.lane, settled.due_at, settled.id
    FROM settled
-- end
    WHERE settled.state = 0
), recorded AS (
-- block: record-outcomes of settled
    INSERT INTO durable.attempts (
        run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log
    )
    SELECT
        settled.id,
        settled.fence,
        settled.attempt + (@outcomes::jsonb -> (settled.id::text) ->> 2)::int,
        (@outcomes::jsonb -> (settled.id::text) ->> 3)::smallint,
        @worker::text,
        settled.started_at,
        least(
            now(),
            settled.started_at
                + (@outcomes::jsonb -> (settled.id::text) ->> 8)::bigint * interval '1 microsecond'
        ),
        @outcomes::jsonb -> (settled.id::text) ->> 4,
        @outcomes::jsonb -> (settled.id::text) ->> 5,
        @outcomes::jsonb -> (settled.id::text) ->> 7
    FROM settled
    WHERE @outcomes::jsonb -> (settled.id::text) ->> 3 IS NOT NULL
    ON CONFLICT DO NOTHING
-- end
), reported AS (
-- block: report-outcomes of settled
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT
        settled.id,
        now(),
        settled.state,
        CASE
            WHEN @outcomes::jsonb -> (settled.id::text) ->> 0 = '0' THEN settled.cancel
            ELSE @outcomes::jsonb -> (settled.id::text) ->> 4
        END,
        abs(settled.lane)
    FROM settled
    WHERE settled.state >= 4
    ON CONFLICT DO NOTHING
-- end
)
SELECT settled.id
FROM settled;

-- name: SettleLimited :many
-- SettleRuns for the runs of a limited claim, which wait in the lines of their gates. The
-- starts of those that are handed back, whose handlers have not begun, are given back to
-- their rates, whose other runs are examined again: the one that is handed back may be
-- cancelled, or wait where no worker looks. Permits are released by the statements after it.
-- Index: runs_pkey; permits_pkey for a run whose permits outlast a claim. Locks and
-- idempotence: as SettleRuns.
WITH settled AS (
-- block: write-outcomes
    UPDATE durable.runs
    SET state = CASE
            WHEN cancel IS NOT NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0' THEN 5
            ELSE (@outcomes::jsonb -> (id::text) ->> 0)::smallint
        END,
        due_at = CASE
            WHEN cancel IS NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0'
                THEN now()
                    + (@outcomes::jsonb -> (id::text) ->> 1)::bigint * interval '1 microsecond'
            ELSE due_at
        END,
        attempt = attempt - (@outcomes::jsonb -> (id::text) ->> 2)::int,
        result = (@outcomes::jsonb -> (id::text) ->> 6)::json,
        finished_at = CASE
            WHEN cancel IS NOT NULL OR @outcomes::jsonb -> (id::text) ->> 0 <> '0' THEN now()
        END
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = 1
-- end
    RETURNING
        id, lane, state, due_at, attempt, fence, started_at, cancel, gates, limits, weights, strict
), listed AS (
-- block: read-lines of settled
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT (abs(own.gate) >> 43)::int, settled.lane
    FROM settled
    CROSS JOIN LATERAL pg_catalog.unnest(settled.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = (abs(own.gate) >> 43)::int
          AND known.lane = settled.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), lined AS (
-- block: enter-waiting of settled
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        coalesce(
            CASE
                WHEN settled.strict IS NULL THEN settled.gates[1]
                ELSE (
                    SELECT settled.gates[wanted.place]
                    FROM pg_catalog.generate_subscripts(settled.gates, 1) AS wanted (place)
                    WHERE (
                        settled.gates[wanted.place] <> ALL (settled.strict)
                        OR NOT EXISTS (
                            SELECT
                            FROM durable.permits
                            WHERE permits.gate = settled.gates[wanted.place]
                              AND permits.owner = settled.id
                        )
                      )
                      AND (
                        settled.gates[wanted.place] > 0
                        OR NOT EXISTS (
                            SELECT
                            FROM durable.permits
                            WHERE permits.gate = ANY (settled.strict)
                              AND permits.owner = settled.id
                        )
                      )
                    ORDER BY wanted.place
                    LIMIT 1
                )
            END,
            0
        ),
        settled.lane,
        settled.due_at,
        settled.id,
        pg_catalog.cardinality(settled.gates) <> 1
            OR pg_catalog.cardinality(settled.limits) <> 1
            OR settled.limits[1] ~ '[*!]'
    FROM settled
-- end
    WHERE settled.state = 0
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
), refunded AS (
    INSERT INTO durable.refunds (gate, charged_at, k)
    SELECT
        settled.gates[charged.place],
        settled.started_at,
        coalesce(settled.weights[charged.place], 1)
    FROM settled
    CROSS JOIN generate_subscripts(settled.gates, 1) AS charged (place)
    JOIN durable.limits ON limits.id = (settled.gates[charged.place] >> 43)::int
    WHERE settled.id = ANY (@handed_back::uuid[])
      AND limits.kind <> 1
    RETURNING gate
), freed AS (
-- block: free of refunded
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT (1 << 30) + (freed.gate >> 43)::int, clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT refunded.gate FROM refunded) freed
-- end
), recorded AS (
-- block: record-outcomes of settled
    INSERT INTO durable.attempts (
        run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log
    )
    SELECT
        settled.id,
        settled.fence,
        settled.attempt + (@outcomes::jsonb -> (settled.id::text) ->> 2)::int,
        (@outcomes::jsonb -> (settled.id::text) ->> 3)::smallint,
        @worker::text,
        settled.started_at,
        least(
            now(),
            settled.started_at
                + (@outcomes::jsonb -> (settled.id::text) ->> 8)::bigint * interval '1 microsecond'
        ),
        @outcomes::jsonb -> (settled.id::text) ->> 4,
        @outcomes::jsonb -> (settled.id::text) ->> 5,
        @outcomes::jsonb -> (settled.id::text) ->> 7
    FROM settled
    WHERE @outcomes::jsonb -> (settled.id::text) ->> 3 IS NOT NULL
    ON CONFLICT DO NOTHING
-- end
), reported AS (
-- block: report-outcomes of settled
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT
        settled.id,
        now(),
        settled.state,
        CASE
            WHEN @outcomes::jsonb -> (settled.id::text) ->> 0 = '0' THEN settled.cancel
            ELSE @outcomes::jsonb -> (settled.id::text) ->> 4
        END,
        abs(settled.lane)
    FROM settled
    WHERE settled.state >= 4
    ON CONFLICT DO NOTHING
-- end
)
SELECT settled.id
FROM settled;

-- name: Unlease :exec
-- Deletes the lease of a claim, with its last settle.
-- A lease of more runs than its worker says it was given (@claimed; 0: it does not say)
-- is deleted only when none of its runs is still running: the lease of a run that no
-- worker knows of must expire, so that the run is found. The size of an array of n ids
-- is 16 n and 20 to 24 bytes, and is known without reading it; only where it differs
-- are the runs read.
-- Index: leases_pkey, runs_pkey. Locks: the lease with SKIP LOCKED; a reclaim that has
-- locked it deletes it itself. Idempotent: a repeat finds no row.
DELETE FROM durable.leases
WHERE claim_id = ANY (ARRAY(
        SELECT settled.claim_id
        FROM durable.leases settled
        WHERE settled.claim_id = @claim_id::uuid
        FOR UPDATE SKIP LOCKED
    ))
  AND (
      @claimed::int = 0
      OR (pg_column_size(run_ids) - 20) / 16 = @claimed::int
      OR NOT EXISTS (
          SELECT
          FROM durable.runs
          WHERE runs.id = ANY (leases.run_ids)
            AND runs.claim_id = leases.claim_id
            AND runs.state = 1
      )
  );

-- name: SettleLast :many
-- SettleSuccesses and Unlease of a claim's last few runs in one statement. The snapshot
-- is older than what it writes, so the runs that it settles are left out where Unlease
-- looks for others.
-- Index: runs_pkey, then leases_pkey: what is not read runs last. Locks: as those two.
-- Idempotent: a repeat, or a late one, returns no rows.
WITH settled AS (
    UPDATE durable.runs
    SET state = 2,
        finished_at = now()
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = 1
    RETURNING id
), ended AS (
    DELETE FROM durable.leases
    WHERE claim_id = ANY (ARRAY(
            SELECT locked.claim_id
            FROM durable.leases locked
            WHERE locked.claim_id = @claim_id::uuid
            FOR UPDATE SKIP LOCKED
        ))
      AND (
          @claimed::int = 0
          OR (pg_column_size(run_ids) - 20) / 16 = @claimed::int
          OR NOT EXISTS (
              SELECT
              FROM durable.runs
              WHERE runs.id = ANY (leases.run_ids)
                AND runs.id <> ALL (@ids::uuid[])
                AND runs.claim_id = leases.claim_id
                AND runs.state = 1
          )
      )
)
SELECT settled.id
FROM settled;

-- name: Verdicts :many
-- What happened to runs that a settle did not touch. Index: runs_pkey. Locks: none.
SELECT
    id,
    (claim_id IS NOT DISTINCT FROM @claim_id::uuid AND state <> 1)::boolean AS landed
FROM durable.runs
WHERE id = ANY (@ids::uuid[]);

-- name: FreeRuns :many
-- Locks the runs that still belong to the claim, with SKIP LOCKED, and returns all of
-- them; free is false for those that another transaction has locked. Index: runs_pkey.
WITH locked_runs AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = 1
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT
    id,
    (id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs)))::boolean AS free
FROM durable.runs
WHERE id = ANY (@ids::uuid[])
  AND claim_id = @claim_id::uuid
  AND state = 1;

-- name: StillHeld :many
-- Those of some runs that are running under the claim named with each.
-- Index: runs_pkey, one probe for each run: the LIMIT keeps the planner from a join that
-- reads all of them. Locks: none.
SELECT held.id
FROM (
    SELECT
        unnest(@ids::uuid[]) AS id,
        unnest(@claims::uuid[]) AS claim_id
) asked
CROSS JOIN LATERAL (
    SELECT runs.id
    FROM durable.runs
    WHERE runs.id = asked.id
      AND runs.claim_id = asked.claim_id
      AND runs.state = 1
    LIMIT 1
) held;
