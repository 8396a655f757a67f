-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: FindHolder :one
-- Index: the key of unique_keys, then that of runs, and the primary keys of steps and inputs.
-- No other transaction writes meanwhile. A holder that is no longer stored has no state. Begun:
-- it has recorded a step, was sent an input, or waits for runs.
SELECT
    unique_keys.run_id, unique_keys.latest, unique_keys.held_to, runs.state, runs.lane, runs.due_at,
    runs.created_at, runs.limits,
    CAST(
        EXISTS (
            SELECT 1
            FROM steps
            WHERE steps.run_id = unique_keys.run_id
        )
        OR EXISTS (
            SELECT 1
            FROM inputs
            WHERE inputs.run_id = unique_keys.run_id
        )
        OR EXISTS (
            SELECT 1
            FROM edges
            WHERE edges.waiter = unique_keys.run_id
        ) AS INTEGER
    ) AS begun
FROM unique_keys
LEFT JOIN runs ON runs.id = unique_keys.run_id
WHERE unique_keys.job = @job
  AND unique_keys.key = @key;

-- name: TakeKey :exec
-- The caller has found in the same transaction that no run keeps it.
INSERT INTO unique_keys (job, key, run_id, latest, held_to)
VALUES (@job, @key, @run_id, @run_id, @held_to)
ON CONFLICT (job, key) DO UPDATE
SET run_id = excluded.run_id,
    latest = excluded.latest,
    held_to = excluded.held_to;

-- name: SetLatest :exec
-- The holder has been replaced once more.
UPDATE unique_keys
SET latest = @latest
WHERE job = @job
  AND key = @key;

-- name: InsertKeyed :execrows
-- InsertRun for a run with a key, or with limits, if it has any.
INSERT INTO runs (
    id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, metadata,
    trace, args, key, limits
)
VALUES (
    @id, @created_at, @due_at, @expires_at, @timeout, @lane, @max_attempts, @on_crash, @tags,
    @metadata, @trace, @args, @key, @limits
)
ON CONFLICT (id) DO NOTHING;

-- name: DeleteReady :exec
-- Index: the primary key. The caller puts the run into another place.
DELETE FROM ready
WHERE lane = @lane
  AND due_at = @due_at
  AND run_id = @run_id;

-- name: ReplaceRun :exec
-- A pending run, whose row of ready the caller has deleted.
UPDATE runs
SET lane = @lane,
    due_at = @due_at,
    expires_at = @expires_at,
    timeout = @timeout,
    max_attempts = @max_attempts,
    on_crash = @on_crash,
    tags = @tags,
    metadata = @metadata,
    trace = @trace,
    args = @args,
    limits = @limits,
    occurs_at = NULL,
    attempt = 0
WHERE id = @id
  AND state = 0;

-- name: DeleteProgress :exec
-- What an attempt has noted for the next one was about other args.
DELETE FROM progress
WHERE run_id = @run_id;
