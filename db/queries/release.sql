-- Permits of limited runs, and what goes with their end. Who releases one inserts a turn on
-- the line of its limit in the same transaction, whether or not a waiter is seen: the
-- waiter may be in a transaction that this one does not see yet.

-- name: HoldLeases :exec
-- Before the settlements of limited claims: a reclaim skips their leases, so that
-- their permits have one who releases them.
-- Index: leases_pkey. Locks: the leases, in the order of their ids, shared, so that a
-- renewal does not wait. Idempotent: a lease that has gone is not locked.
SELECT
FROM durable.leases
WHERE claim_id = ANY (@claims::uuid[])
ORDER BY claim_id
FOR KEY SHARE;

-- name: Release :one
-- Ends the part that runs have in the permits of their claim, after they were settled:
-- whatever their verdict, none of them is running under the claim. With the last of a
-- claim its permits are deleted whole; before, a permit may be left with no run and no
-- place. Returns the lines of the turns for whose gates a run waits: the last one of a
-- gate's lines is looked for, as the index begins with what was admitted since it was last
-- vacuumed. Blocked are those of them in whose gates few or no places were free before
-- (another admission may just have taken some), or whose runs may need several: runs of the
-- others wait only until a worker looks.
-- Index: leases_pkey, permits_pkey, waiting_order, limits_pkey. Locks: the permits of one
-- claim, whose lease the transaction has locked. A second settlement of the same claim waits, and
-- computes again from the row as it is then.
-- Idempotent: runs that are in no permit touch nothing; of a claim whose lease has gone
-- there are no permits.
WITH gone AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id
), held AS MATERIALIZED (
    SELECT
        leases.gates,
        @last::boolean
            AND (
                durable.runs_of(leases.run_ids) = @claimed::int
                OR NOT EXISTS (
                    SELECT
                    FROM durable.runs
                    WHERE runs.id = ANY (leases.run_ids)
                      AND runs.claim_id = leases.claim_id
                      AND runs.state = durable.running()
                )
            ) AS whole
    FROM durable.leases
    WHERE leases.claim_id = @claim_id::uuid
), released AS (
    DELETE FROM durable.permits
    WHERE gate = ANY (ARRAY(SELECT unnest(held.gates) FROM held WHERE held.whole))
      AND owner = @claim_id::uuid
    RETURNING gate
), reduced AS (
    UPDATE durable.permits
-- block: reduce-permits
    SET (runs, k) = (
        SELECT
            coalesce(array_agg(staying.run ORDER BY staying.run), '{}'),
            CASE
                WHEN permits.k = cardinality(permits.runs) THEN count(*)
                ELSE coalesce(sum(durable.weight_of(staying.run, permits.gate)), 0)
            END
        FROM unnest(permits.runs) AS staying (run)
        WHERE staying.run NOT IN (SELECT gone.id FROM gone)
    )
-- end
    WHERE gate = ANY (ARRAY(SELECT unnest(held.gates) FROM held WHERE NOT held.whole))
      AND owner = @claim_id::uuid
      AND EXISTS (
          SELECT
          FROM unnest(permits.runs) AS named (run)
          WHERE named.run IN (SELECT gone.id FROM gone)
      )
    RETURNING gate
), touched AS (
    SELECT released.gate FROM released
    UNION ALL
    SELECT reduced.gate FROM reduced
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
), wanted AS (
-- block: awaited of touched
    SELECT
        durable.line_of_gate(touched.gate) AS line,
        last.more OR durable.used(touched.gate) >= durable.few_free_from(touched.gate) AS blocked
    FROM touched
    CROSS JOIN LATERAL (
        (
            SELECT waiting.more
            FROM durable.waiting
            WHERE waiting.gate = touched.gate
            ORDER BY
                waiting.gate DESC, waiting.lane DESC, waiting.due_at DESC, waiting.run_id DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT true
            FROM durable.rounds
            WHERE rounds.gate = touched.gate
            LIMIT 1
        )
        LIMIT 1
    ) last
-- end
)
SELECT
    ARRAY(SELECT DISTINCT wanted.line FROM wanted)::int[] AS wanted,
    ARRAY(SELECT DISTINCT wanted.line FROM wanted WHERE wanted.blocked)::int[] AS blocked;

-- name: SettleWhole :one
-- HoldLeases, SettleSuccesses, Release, ReleaseFinished and Unlease of one limited claim, all
-- of whose runs have plainly succeeded, in one statement. It touches nothing, and says that
-- it does not hold, if the lease is that of more or fewer runs, a reclaim has it, or a run
-- has permits that outlast the claim: then those statements have to settle the runs.
-- Settled are the runs that it has ended; wanted and blocked are as in Release.
-- Index: leases_pkey, then runs_pkey, permits_pkey, waiting_order, limits_pkey, and
-- leases_pkey again: what is not read runs last. Locks: as those statements, in their order.
-- Idempotent: a repeat finds no lease and touches nothing.
WITH held AS MATERIALIZED (
    SELECT leases.claim_id, leases.gates
    FROM durable.leases
    WHERE leases.claim_id = @claim_id::uuid
      AND leases.strict IS NOT TRUE
      AND durable.runs_of(leases.run_ids) = cardinality(@ids::uuid[])
    FOR KEY SHARE SKIP LOCKED
), settled AS (
    UPDATE durable.runs
    SET state = durable.succeeded(),
        finished_at = now()
    WHERE id = ANY (@ids::uuid[])
      AND claim_id = (SELECT held.claim_id FROM held)
      AND state = durable.running()
    RETURNING id
), ended AS (
    DELETE FROM durable.leases
    WHERE claim_id = ANY (ARRAY(
        SELECT locked.claim_id
        FROM durable.leases locked
        WHERE locked.claim_id = (SELECT held.claim_id FROM held)
        FOR UPDATE SKIP LOCKED
    ))
), touched AS (
    DELETE FROM durable.permits
    WHERE gate = ANY (ARRAY(SELECT unnest(held.gates) FROM held))
      AND owner = (SELECT held.claim_id FROM held)
    RETURNING gate
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
), wanted AS (
-- block: awaited of touched
    SELECT
        durable.line_of_gate(touched.gate) AS line,
        last.more OR durable.used(touched.gate) >= durable.few_free_from(touched.gate) AS blocked
    FROM touched
    CROSS JOIN LATERAL (
        (
            SELECT waiting.more
            FROM durable.waiting
            WHERE waiting.gate = touched.gate
            ORDER BY
                waiting.gate DESC, waiting.lane DESC, waiting.due_at DESC, waiting.run_id DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT true
            FROM durable.rounds
            WHERE rounds.gate = touched.gate
            LIMIT 1
        )
        LIMIT 1
    ) last
-- end
)
SELECT
    EXISTS (SELECT FROM held) AS held,
    ARRAY(SELECT settled.id FROM settled)::uuid[] AS settled,
    ARRAY(SELECT DISTINCT wanted.line FROM wanted)::int[] AS wanted,
    ARRAY(SELECT DISTINCT wanted.line FROM wanted WHERE wanted.blocked)::int[] AS blocked;

-- name: ReleaseFinished :one
-- Ends the permits that outlast a claim, of those runs that have ended for good, and gives
-- back those of named owners. Nothing but one probe where the lease says that no run of
-- the claim has such. Returns the lines of the turns that it has inserted.
-- Index: leases_pkey, runs_pkey, permits_pkey. Locks: the permits, by their owners.
-- Idempotent: a repeat finds no rows.
WITH over AS MATERIALIZED (
    SELECT runs.id, runs.state, runs.strict, runs.gives
    FROM durable.runs
    WHERE EXISTS (
            SELECT
            FROM durable.leases
            WHERE leases.claim_id = @claim_id::uuid
              AND leases.strict
        )
      AND runs.id = ANY (@ids::uuid[])
      AND runs.claim_id = @claim_id::uuid
      AND durable.is_ended(runs.state)
), finished AS (
-- block: end-permits of over
    DELETE FROM durable.permits
    USING over
    WHERE over.strict IS NOT NULL
      AND permits.gate = ANY (over.strict)
      AND permits.owner = over.id
      AND (permits.until = durable.until_finished() OR over.state <> durable.dead())
    RETURNING permits.gate
-- end
), given_back AS (
-- block: give-back of over
    DELETE FROM durable.permits
    USING (
        SELECT
            split_part(over.gives[given.place], ':', 1)::bigint AS gate,
            split_part(over.gives[given.place], ':', 2)::uuid AS owner
        FROM over
        CROSS JOIN generate_subscripts(over.gives, 1) AS given (place)
        WHERE over.state = durable.succeeded()
    ) back
    WHERE permits.gate = back.gate
      AND permits.owner = back.owner
      AND permits.until = durable.until_expires()
    RETURNING permits.gate
-- end
), touched AS (
    SELECT finished.gate FROM finished
    UNION ALL
    SELECT given_back.gate FROM given_back
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
)
SELECT ARRAY(
    SELECT DISTINCT durable.line_of_gate(touched.gate)
    FROM touched
)::int[] AS wanted;
