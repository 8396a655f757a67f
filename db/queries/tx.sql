-- name: GuardRun :many
-- In the caller's transaction: locks the run, if it still belongs to the claim,
-- until that transaction ends, and reclaim passes it over meanwhile. The id returned is
-- the verdict.
-- Index: runs_pkey. Locks: the run; waits for a transaction that has locked it (a
-- reclaim), and checks the condition again afterwards.
-- Idempotent: a repeat returns the same row.
SELECT id
FROM durable.runs
WHERE id = @id::uuid
  AND claim_id = @claim_id::uuid
  AND state = durable.running()
FOR UPDATE;

-- name: CompleteRun :many
-- In the caller's transaction: ends the run, if it still belongs to the claim, and
-- records the attempt (outcome 1, success) when it has log lines. The id returned is the
-- verdict.
-- Index: runs_pkey; workers_pkey for the worker's name. Locks: the run.
-- Idempotent: a repeat in one transaction, or a late call, returns no row.
WITH completed AS (
    UPDATE durable.runs
    SET state = durable.succeeded(),
        finished_at = statement_timestamp(),
        result = sqlc.narg(result)::json
    WHERE id = @id::uuid
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
    RETURNING id, fence, attempt, worker, started_at
), recorded AS (
    INSERT INTO durable.attempts (
        run_id, fence, number, outcome, worker, started_at, ended_at, log
    )
    SELECT
        completed.id,
        completed.fence,
        completed.attempt,
        durable.success(),
        coalesce(durable.worker_name(completed.worker), ''),
        completed.started_at,
        statement_timestamp(),
        sqlc.narg(log)::text
    FROM completed
    WHERE sqlc.narg(log)::text IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT completed.id
FROM completed;

-- name: HoldRun :many
-- Locks the run, if it still belongs to the claim, as a settle or a reclaim would. It
-- comes after the inserts of the same transaction, so that rows are locked in the one
-- order; nothing of those is seen when it finds no row.
-- Index: runs_pkey. Locks: the run. Idempotent: a repeat returns the same row.
SELECT id
FROM durable.runs
WHERE id = @id::uuid
  AND claim_id = @claim_id::uuid
  AND state = durable.running()
FOR NO KEY UPDATE;

-- name: NotifyAtCommit :many
-- In the caller's transaction, whose settings it leaves alone. Listeners are
-- notified when that commits. No rows, no locks until then.
-- Idempotent: a repeat in one transaction sends one notification.
SELECT pg_notify(@channel::text, @payload::text)::text AS sent;

-- name: NotifyUnwatched :many
-- NotifyAtCommit, unless workers look in all of the lanes by themselves in this tenth of a
-- second. Then none is notified, and rest is how long it lasts. Who looks holds an advisory
-- lock for each lane and tenth, see Watch; what this one takes lasts until the transaction
-- ends, and keeps a watch of this tenth from beginning.
-- Every operator has its types exactly: the caller's search_path may have others.
-- No rows. Locks: advisory ones, shared, for which it does not wait.
-- Idempotent: a repeat in one transaction sends one notification.
WITH instant AS MATERIALIZED (
    SELECT (
        extract(epoch FROM pg_catalog.clock_timestamp())::float8 * 1000000::float8
    )::bigint AS micros
), lanes AS MATERIALIZED (
    SELECT pg_catalog.unnest(@lanes::bigint[]) AS lane
), watched AS MATERIALIZED (
    SELECT coalesce(
            pg_catalog.bool_and(
                NOT pg_catalog.pg_try_advisory_xact_lock_shared(
                    lanes.lane | (
                        (instant.micros / durable.tenth()::bigint) & durable.tenth_bits()::bigint
                    )
                )
            ),
            false
        ) AS by_some
    FROM lanes
    CROSS JOIN instant
)
SELECT
    CASE
        WHEN watched.by_some
            THEN durable.tenth()::bigint - instant.micros % durable.tenth()::bigint
        WHEN pg_catalog.pg_notify(@channel::text, @payload::text) IS NULL THEN 0::bigint
        ELSE 0::bigint
    END::bigint AS rest
FROM watched
CROSS JOIN instant;

-- name: Unflushed :exec
-- Heads a batch of hints: no caller waits for their flush. No rows, no locks.
SELECT set_config('synchronous_commit', 'off', true);
