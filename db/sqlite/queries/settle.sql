-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: SettleSuccess :one
-- Fenced by the claim. Idempotent: a repeat finds another state and returns no row.
UPDATE runs
SET state = 2,
    finished_at = @finished_at,
    result = @result
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1
RETURNING attempt, fence, started_at, worker, limits;

-- name: SettleEnded :one
-- Dead or cancelled. Fenced by the claim. Idempotent: a repeat returns no row.
UPDATE runs
SET state = @state,
    finished_at = @finished_at
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1
RETURNING attempt, fence, started_at, limits;

-- name: SettlePending :one
-- To be executed again, or cancelled where that was asked. Fenced by the claim.
-- Idempotent: a repeat returns no row. The caller puts the run into ready, or into
-- problems.
UPDATE runs
SET state = CASE WHEN cancel IS NULL THEN 0 ELSE 5 END,
    attempt = attempt - @refund,
    due_at = CASE WHEN cancel IS NULL THEN @due_at ELSE due_at END,
    finished_at = CASE WHEN cancel IS NULL THEN NULL ELSE CAST(@now AS INTEGER) END
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1
RETURNING lane, attempt, fence, started_at, cancel, limits;

-- name: InsertAttempt :exec
-- A fence belongs to one claim of the run, so an attempt is recorded once.
INSERT INTO attempts (
    run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log
)
VALUES (@run_id, @fence, @number, @outcome, @worker, @started_at, @ended_at, @error, @stack, @log);

-- name: InsertProblem :exec
INSERT INTO problems (run_id, ended_at, reason)
VALUES (@run_id, @ended_at, @reason);

-- name: FindClaimOfRun :one
-- Whose run it is, after a write was not accepted.
SELECT claim_id, state
FROM runs
WHERE id = @id;
