-- name: SettleSuccesses :many
-- Ends runs that succeeded. The ids returned are the verdict.
-- Index: runs_pkey. Locks: the runs that still belong to the claim, in id order; waits
-- for a transaction that has locked one (a reclaim), and checks the condition again
-- afterwards. Idempotent: a repeat, or a late call, returns no rows.
UPDATE durable.runs
SET state = durable.succeeded(),
    finished_at = now()
WHERE id = ANY (@ids::uuid[])
  AND claim_id = @claim_id::uuid
  AND state = durable.running()
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
            WHEN cancel IS NOT NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
                THEN durable.cancelled()
            ELSE durable.outcome_state(@outcomes::jsonb, id)::smallint
        END,
        due_at = CASE
            WHEN cancel IS NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
                THEN now()
                    + durable.outcome_delay(@outcomes::jsonb, id)::bigint * interval '1 microsecond'
            ELSE due_at
        END,
        attempt = attempt - durable.outcome_refund(@outcomes::jsonb, id)::int,
        result = durable.outcome_result(@outcomes::jsonb, id)::json,
        finished_at = CASE
            WHEN cancel IS NOT NULL OR durable.outcome_is_ended(@outcomes::jsonb, id) THEN now()
        END
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
-- end
    RETURNING id, lane, state, due_at, attempt, fence, started_at, cancel
), queued AS (
-- block: enter-line of settled
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT settled.lane, settled.due_at, settled.id
    FROM settled
-- end
    WHERE settled.state = durable.pending()
), recorded AS (
-- block: record-outcomes of settled
    INSERT INTO durable.attempts (
        run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log
    )
    SELECT
        settled.id,
        settled.fence,
        settled.attempt + durable.outcome_refund(@outcomes::jsonb, settled.id)::int,
        durable.outcome_kind(@outcomes::jsonb, settled.id)::smallint,
        @worker::text,
        settled.started_at,
        least(
            now(),
            settled.started_at
                + durable.outcome_took(@outcomes::jsonb, settled.id)::bigint
                    * interval '1 microsecond'
        ),
        durable.outcome_error(@outcomes::jsonb, settled.id),
        durable.outcome_stack(@outcomes::jsonb, settled.id),
        durable.outcome_log(@outcomes::jsonb, settled.id)
    FROM settled
    WHERE durable.outcome_kind(@outcomes::jsonb, settled.id) IS NOT NULL
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
            WHEN durable.outcome_is_pending(@outcomes::jsonb, settled.id) THEN settled.cancel
            ELSE durable.outcome_error(@outcomes::jsonb, settled.id)
        END,
        abs(settled.lane)
    FROM settled
    WHERE durable.is_problem(settled.state)
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
            WHEN cancel IS NOT NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
                THEN durable.cancelled()
            ELSE durable.outcome_state(@outcomes::jsonb, id)::smallint
        END,
        due_at = CASE
            WHEN cancel IS NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
                THEN now()
                    + durable.outcome_delay(@outcomes::jsonb, id)::bigint * interval '1 microsecond'
            ELSE due_at
        END,
        attempt = attempt - durable.outcome_refund(@outcomes::jsonb, id)::int,
        result = durable.outcome_result(@outcomes::jsonb, id)::json,
        finished_at = CASE
            WHEN cancel IS NOT NULL OR durable.outcome_is_ended(@outcomes::jsonb, id) THEN now()
        END
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
-- end
    RETURNING
        id, lane, state, due_at, attempt, fence, started_at, cancel, gates, limits, weights, strict
), listed AS (
-- block: read-lines of settled
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), settled.lane
    FROM settled
    CROSS JOIN LATERAL pg_catalog.unnest(settled.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = settled.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), lined AS (
-- block: enter-waiting of settled
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(settled.id, settled.gates, settled.strict),
        settled.lane,
        settled.due_at,
        settled.id,
        durable.is_more(settled.gates, settled.limits)
    FROM settled
-- end
    WHERE settled.state = durable.pending()
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
    JOIN durable.limits ON limits.id = durable.limit_of(settled.gates[charged.place])
    WHERE settled.id = ANY (@handed_back::uuid[])
      AND limits.kind <> durable.limit_semaphore()
    RETURNING gate
), freed AS (
-- block: free of refunded
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
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
        settled.attempt + durable.outcome_refund(@outcomes::jsonb, settled.id)::int,
        durable.outcome_kind(@outcomes::jsonb, settled.id)::smallint,
        @worker::text,
        settled.started_at,
        least(
            now(),
            settled.started_at
                + durable.outcome_took(@outcomes::jsonb, settled.id)::bigint
                    * interval '1 microsecond'
        ),
        durable.outcome_error(@outcomes::jsonb, settled.id),
        durable.outcome_stack(@outcomes::jsonb, settled.id),
        durable.outcome_log(@outcomes::jsonb, settled.id)
    FROM settled
    WHERE durable.outcome_kind(@outcomes::jsonb, settled.id) IS NOT NULL
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
            WHEN durable.outcome_is_pending(@outcomes::jsonb, settled.id) THEN settled.cancel
            ELSE durable.outcome_error(@outcomes::jsonb, settled.id)
        END,
        abs(settled.lane)
    FROM settled
    WHERE durable.is_problem(settled.state)
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
      OR durable.runs_of(run_ids) = @claimed::int
      OR NOT EXISTS (
          SELECT
          FROM durable.runs
          WHERE runs.id = ANY (leases.run_ids)
            AND runs.claim_id = leases.claim_id
            AND runs.state = durable.running()
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
    SET state = durable.succeeded(),
        finished_at = now()
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
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
          OR durable.runs_of(run_ids) = @claimed::int
          OR NOT EXISTS (
              SELECT
              FROM durable.runs
              WHERE runs.id = ANY (leases.run_ids)
                AND runs.id <> ALL (@ids::uuid[])
                AND runs.claim_id = leases.claim_id
                AND runs.state = durable.running()
          )
      )
)
SELECT settled.id
FROM settled;

-- name: Verdicts :many
-- What happened to runs that a settle did not touch. Index: runs_pkey. Locks: none.
SELECT
    id,
    (
        claim_id IS NOT DISTINCT FROM @claim_id::uuid
        AND state <> durable.running()
    )::boolean AS landed
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
      AND state = durable.running()
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT
    id,
    (id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs)))::boolean AS free
FROM durable.runs
WHERE id = ANY (@ids::uuid[])
  AND claim_id = @claim_id::uuid
  AND state = durable.running();

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
      AND runs.state = durable.running()
    LIMIT 1
) held;
