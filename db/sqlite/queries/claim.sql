-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: FindLease :one
-- Index: the primary key.
SELECT run_ids
FROM leases
WHERE claim_id = @claim_id;

-- name: InsertLease :exec
INSERT INTO leases (
    claim_id, acquired_at, expires_at, alone, worker_instance, worker_name, run_ids
)
VALUES (@claim_id, @acquired_at, @expires_at, @alone, @worker_instance, @worker_name, @run_ids);

-- name: FindClaimed :one
-- A run that still belongs to its claim, for a claim that is repeated.
SELECT
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, expires_at,
    trace, key, schedule, occurs_at, tags, metadata, args, links
FROM runs
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1;

-- name: RenewLease :execrows
-- Expired or not: as long as the row exists, the runs have not been reclaimed, unless a
-- part of them was (a negative expiry, see TakeLeaseInPart).
UPDATE leases
SET expires_at = @expires_at
WHERE claim_id = @claim_id
  AND expires_at > 0;

-- name: DeleteLeaseOf :execrows
-- Only one of so many bytes of ids; their length is known without reading them.
DELETE FROM leases
WHERE claim_id = @claim_id
  AND length(run_ids) = CAST(@size AS INTEGER);

-- name: DeleteLease :exec
DELETE FROM leases
WHERE claim_id = @claim_id;
