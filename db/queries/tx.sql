-- name: GuardRun :many
-- runs_pkey. In a transaction of the caller's: locks the run, if it is still
-- the claim's, until that ends, and reclaim passes it over meanwhile; whoever
-- else holds it (a reclaim) is waited for, and the guard is then looked at
-- again. The id returned is the verdict. Twice: the same row.
SELECT id FROM durable.runs WHERE id = @id::uuid AND claim_id = @claim_id::uuid AND state = 1 FOR UPDATE;

-- name: CompleteRun :many
-- runs_pkey. In a transaction of the caller's: locks the run, if it is still
-- the claim's, and records the attempt when it has log lines; workers_pkey tells
-- its worker. The id returned is the verdict. Twice in one transaction, or late:
-- no row.
WITH u AS (
    UPDATE durable.runs SET state = 2, finished_at = statement_timestamp(), result = sqlc.narg(result)::json
    WHERE id = @id::uuid AND claim_id = @claim_id::uuid AND state = 1
    RETURNING id, fence, attempt, worker, started_at
), a AS (
    INSERT INTO durable.attempts (run_id, fence, number, outcome, worker, started_at, ended_at, log)
    SELECT u.id, u.fence, u.attempt, 1, coalesce((SELECT w.name FROM durable.workers w WHERE w.id = u.worker), ''), u.started_at,
           statement_timestamp(), sqlc.narg(log)::text
    FROM u WHERE sqlc.narg(log)::text IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT u.id FROM u;

-- name: HoldRun :many
-- runs_pkey. Locks the run, if it is still the claim's, as a settle or a reclaim
-- would. It comes after the inserts of the same transaction, so that rows are
-- locked in the one order; nothing of those is seen when it finds no row.
SELECT id FROM durable.runs WHERE id = @id::uuid AND claim_id = @claim_id::uuid AND state = 1 FOR NO KEY UPDATE;

-- name: NotifyAtCommit :many
-- In a transaction of the caller's, whose settings it leaves alone. Listeners
-- hear of it when that commits. No rows, no locks until then. Twice in one
-- transaction: one notification.
SELECT pg_notify(@channel::text, @payload::text)::text AS sent;
