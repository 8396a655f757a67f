-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: ExpiresBefore :one
-- A scan of leases, of which there are few.
SELECT count(*)
FROM leases
WHERE expires_at <= @at;

-- name: ExpiredLeases :many
-- A scan of leases, of which there are few; run_ids are read only of those that have
-- expired.
SELECT claim_id, alone, worker_name, run_ids
FROM leases
WHERE expires_at <= @until
ORDER BY expires_at, claim_id
LIMIT @most;

-- name: TakeLeaseInPart :exec
-- Index: the primary key. A lease that stays although runs of it were taken back: a
-- negative expiry, which no renewal extends. Idempotent: a repeat changes nothing more.
UPDATE leases
SET expires_at = -abs(expires_at)
WHERE claim_id = @claim_id;

-- name: FindReclaimable :one
-- A run that the expired claim still holds.
SELECT
    runs.lane, runs.attempt, runs.crash_count, runs.on_crash, runs.fence, runs.started_at,
    runs.cancel, runs.limits, lanes.queue, lanes.job
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = @id
  AND runs.claim_id = @claim_id
  AND runs.state = 1;

-- name: ReclaimRun :exec
-- The caller has found the run still held by the expired claim in the same transaction.
-- The claim's id goes, so that its late settle is refused.
UPDATE runs
SET state = @state,
    claim_id = NULL,
    lane = @lane,
    due_at = @due_at,
    finished_at = @finished_at,
    attempt = attempt - 1,
    crash_count = @crash_count
WHERE id = @id
  AND state = 1;
