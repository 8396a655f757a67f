-- name: FindRun :one
-- Served by the key of runs. The empty text stands for no error.
SELECT sqlc.embed(r), l.queue, l.job, l.priority, p.reason,
    CAST(coalesce((SELECT a.error FROM attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') AS TEXT) AS last_error
FROM runs r JOIN lanes l ON l.id = abs(r.lane) LEFT JOIN problems p ON p.run_id = r.id
WHERE r.id = @id;

-- name: ListAttempts :many
-- Served by the primary key; in the order in which they were executed.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log
FROM attempts WHERE run_id = @run_id ORDER BY fence;

-- name: FloorOfRuns :one
-- The key of runs downwards, so many ids and no rows.
SELECT id FROM runs WHERE id < @below AND id >= @from_id ORDER BY id DESC LIMIT 1 OFFSET @skip;

-- name: FloorOfProblems :one
-- The primary key of problems downwards.
SELECT run_id FROM problems WHERE run_id < @below AND run_id >= @from_id ORDER BY run_id DESC LIMIT 1 OFFSET @skip;

-- name: ListRuns :many
-- Walks the key of runs downwards from the cursor to the floor; CROSS JOIN keeps
-- it so. An empty JSON array, and an empty tag, filter nothing.
SELECT sqlc.embed(r), l.queue, l.job, l.priority, p.reason,
    CAST(coalesce((SELECT a.error FROM attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') AS TEXT) AS last_error
FROM runs r CROSS JOIN lanes l ON l.id = abs(r.lane) LEFT JOIN problems p ON p.run_id = r.id
WHERE r.id < @below AND r.id >= @from_id
    AND (@states = '[]' OR r.state IN (SELECT value FROM json_each(@states)))
    AND (@jobs = '[]' OR l.job IN (SELECT value FROM json_each(@jobs)))
    AND (@queues = '[]' OR l.queue IN (SELECT value FROM json_each(@queues)))
    AND (@tag = '' OR EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = @tag))
ORDER BY r.id DESC LIMIT @most;

-- name: ListProblems :many
-- The same where only dead and cancelled runs are asked for: walks problems,
-- which holds nothing else.
SELECT sqlc.embed(r), l.queue, l.job, l.priority, p.reason,
    CAST(coalesce((SELECT a.error FROM attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') AS TEXT) AS last_error
FROM problems p CROSS JOIN runs r ON r.id = p.run_id CROSS JOIN lanes l ON l.id = abs(r.lane)
WHERE p.run_id < @below AND p.run_id >= @from_id
    AND r.state IN (SELECT value FROM json_each(@states))
    AND (@jobs = '[]' OR l.job IN (SELECT value FROM json_each(@jobs)))
    AND (@queues = '[]' OR l.queue IN (SELECT value FROM json_each(@queues)))
    AND (@tag = '' OR EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = @tag))
ORDER BY p.run_id DESC LIMIT @most;
