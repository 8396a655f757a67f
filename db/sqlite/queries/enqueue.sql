-- name: FindLane :one
-- Index: the unique index of lanes.
SELECT id
FROM lanes
WHERE queue = @queue
  AND job = @job
  AND priority = @priority;

-- name: InsertLane :one
-- The caller has looked for the lane in the same write transaction.
INSERT INTO lanes (queue, job, priority)
VALUES (@queue, @job, @priority)
RETURNING id;

-- name: InsertRun :execresult
-- Idempotent: a repeat finds the id, stores nothing, and counts no row.
INSERT INTO runs (
    id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, metadata,
    trace, args
)
VALUES (
    @id, @created_at, @due_at, @expires_at, @timeout, @lane, @max_attempts, @on_crash, @tags,
    @metadata, @trace, @args
)
ON CONFLICT (id) DO NOTHING;

-- name: InsertOccurrence :execrows
-- Idempotent: a repeat finds the id or the occurrence, stores nothing, and counts no row.
INSERT INTO runs (
    id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, metadata,
    args, schedule, generation, occurrence, occurs_at, limits
)
VALUES (
    @id, @created_at, @due_at, @expires_at, @timeout, @lane, @max_attempts, @on_crash, @tags,
    @metadata, @args, @schedule, @generation, @occurrence, @occurs_at, @limits
)
ON CONFLICT DO NOTHING;

-- name: InsertReady :exec
-- The caller has just stored the run as pending in the same transaction.
INSERT INTO ready (lane, due_at, run_id)
VALUES (@lane, @due_at, @run_id);

-- name: InsertReadySince :exec
-- The runs that this transaction has stored: their numbers follow the first one's, since
-- no other transaction writes meanwhile.
INSERT INTO ready (lane, due_at, run_id)
SELECT lane, due_at, id
FROM runs
WHERE seq >= @first;

-- name: StoredSince :many
-- The ids of the runs that this transaction has stored, as InsertReadySince.
SELECT id
FROM runs
WHERE seq >= @first;
