-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: FindSweep :one
-- The only row.
SELECT position, pass, began_at, sweeper, swept_at
FROM sweep
WHERE only_row = 1;

-- name: MoveSweep :exec
-- The only row. Idempotent: a repeat writes the same values.
UPDATE sweep
SET position = @position,
    pass = @pass,
    began_at = @began_at,
    sweeper = @sweeper,
    swept_at = @swept_at
WHERE only_row = 1;

-- name: OwnRetentions :many
-- Reads jobs and lanes, small tables.
SELECT lanes.id, jobs.retention
FROM jobs
JOIN lanes ON lanes.job = jobs.name
WHERE jobs.retention <> 0;

-- name: SweepAhead :many
-- Index: the integer key, from a position on.
SELECT seq, id, state, lane, due_at, created_at, finished_at, claim_id, key, limits, links
FROM runs
WHERE seq > @position
ORDER BY seq
LIMIT @most;

-- name: LastRun :one
-- The end of the integer key.
SELECT CAST(coalesce(max(seq), 0) AS INTEGER) AS seq
FROM runs;

-- name: MendReady :execrows
-- Index: the primary key of ready. The caller has found the run pending in the same
-- transaction. Idempotent: a repeat finds the row.
INSERT OR IGNORE INTO ready (lane, due_at, run_id)
VALUES (@lane, @due_at, @run_id);

-- name: HasLease :one
-- Index: the primary key.
SELECT count(*)
FROM leases
WHERE claim_id = @claim_id;

-- name: HeldKeys :one
-- Index: the primary key of unique_keys, by way of the run's lane. Whether a key is held
-- for the run to a later time.
SELECT count(*)
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
JOIN unique_keys ON unique_keys.job = lanes.job AND unique_keys.key = runs.key
WHERE runs.seq = @seq
  AND unique_keys.run_id = runs.id
  AND unique_keys.held_to > @now;

-- name: DeleteKeyOfRun :exec
-- Index: the primary key of unique_keys, by way of the run's lane. Idempotent: a repeat
-- finds no row.
DELETE FROM unique_keys
WHERE run_id = @run_id
  AND (job, key) IN (
      SELECT lanes.job, runs.key
      FROM runs
      JOIN lanes ON lanes.id = abs(runs.lane)
      WHERE runs.id = @run_id
        AND runs.key IS NOT NULL
  );

-- name: DeleteEnded :execrows
-- Index: the integer key. Only one that has ended. Idempotent: a repeat finds no row.
DELETE FROM runs
WHERE seq = @seq
  AND state IN (2, 4, 5);

-- name: DeleteAttempts :exec
-- Index: the primary key. Idempotent: a repeat finds no rows.
DELETE FROM attempts
WHERE run_id = @run_id;

-- name: DeleteProblem :exec
-- Index: the primary key. Idempotent: a repeat finds no row.
DELETE FROM problems
WHERE run_id = @run_id;

-- name: FindStranded :one
-- Index: the integer key.
SELECT runs.lane, runs.crash_count, runs.on_crash, runs.worker, runs.cancel, lanes.queue, lanes.job
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.seq = @seq
  AND runs.state = 1;

-- name: ReturnRun :exec
-- Index: the integer key. As a hand-back, but the claim's id goes, so that a late settle
-- is refused. The caller has found, in the same transaction, that the claim has no lease,
-- and puts the run into ready or problems.
UPDATE runs
SET state = @state,
    claim_id = NULL,
    attempt = max(attempt - 1, 0),
    due_at = @due_at,
    finished_at = @finished_at
WHERE seq = @seq
  AND state = 1;

-- name: PruneCancels :exec
-- A scan of cancels, of which there are few. A request is written while its claim has a
-- lease, so one without was too late.
DELETE FROM cancels
WHERE NOT EXISTS (
      SELECT 1
      FROM leases
      WHERE leases.claim_id = cancels.claim_id
  );

-- name: PruneWorkers :exec
-- A scan of workers, of which there are few. Runs and attempts keep the name.
DELETE FROM workers
WHERE declared_at < @before
  AND NOT EXISTS (
      SELECT 1
      FROM leases
      WHERE leases.worker_instance = workers.instance
  );

-- name: PruneAudit :exec
-- The oldest changes by their ids, as far as they are old enough.
DELETE FROM audit
WHERE audit.at < @before
  AND audit.id IN (
      SELECT first_rows.id
      FROM audit first_rows
      ORDER BY first_rows.id
      LIMIT @most
  );
