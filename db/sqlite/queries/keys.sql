-- name: FindHolder :one
-- Served by the key of unique_keys, then by that of runs. Nobody else writes
-- meanwhile. A holder that is no longer stored has no state.
SELECT k.run_id, k.latest, k.held_to, r.state, r.lane, r.due_at, r.created_at
FROM unique_keys k LEFT JOIN runs r ON r.id = k.run_id
WHERE k.job = @job AND k.key = @key;

-- name: TakeKey :exec
-- The caller has found in the same transaction that nobody keeps it.
INSERT INTO unique_keys (job, key, run_id, latest, held_to) VALUES (@job, @key, @run_id, @run_id, @held_to)
ON CONFLICT (job, key) DO UPDATE SET run_id = excluded.run_id, latest = excluded.latest, held_to = excluded.held_to;

-- name: SetLatest :exec
-- The holder has been replaced once more.
UPDATE unique_keys SET latest = @latest WHERE job = @job AND key = @key;

-- name: InsertKeyed :execrows
-- InsertRun for a run with a key, if it has one.
INSERT INTO runs (id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, trace, args, key)
VALUES (@id, @created_at, @due_at, @expires_at, @timeout, @lane, @max_attempts, @on_crash, @tags, @trace, @args, @key)
ON CONFLICT (id) DO NOTHING;

-- name: DeleteReady :exec
-- Served by the primary key. The caller puts the run into another place.
DELETE FROM ready WHERE lane = @lane AND due_at = @due_at AND run_id = @run_id;

-- name: ReplaceRun :exec
-- A pending run, whose row of ready the caller has deleted.
UPDATE runs SET lane = @lane, due_at = @due_at, expires_at = @expires_at, timeout = @timeout, max_attempts = @max_attempts,
    on_crash = @on_crash, tags = @tags, trace = @trace, args = @args, attempt = 0
WHERE id = @id AND state = 0;

-- name: DeleteProgress :exec
-- What an attempt has noted for the next one was about other args.
DELETE FROM progress WHERE run_id = @run_id;
