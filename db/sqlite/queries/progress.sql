-- name: Report :execrows
-- Served by the key of runs. Fenced by the claim: no row is counted when the
-- run is no longer the claim's. What is null stays as it is. Twice: the same.
INSERT INTO progress (run_id, updated_at, fraction, note, checkpoint)
SELECT r.id, @updated_at, CAST(sqlc.narg(fraction) AS REAL), CAST(sqlc.narg(note) AS TEXT), CAST(sqlc.narg(checkpoint) AS BLOB)
FROM runs r WHERE r.id = @run_id AND r.claim_id = @claim_id AND r.state = 1
ON CONFLICT (run_id) DO UPDATE SET updated_at = excluded.updated_at,
    fraction = coalesce(excluded.fraction, fraction), note = coalesce(excluded.note, note),
    checkpoint = coalesce(excluded.checkpoint, checkpoint);

-- name: FindProgress :one
-- Served by the primary key.
SELECT fraction, note, updated_at FROM progress WHERE run_id = @run_id;

-- name: FindCheckpoint :one
-- Served by the primary key.
SELECT checkpoint FROM progress WHERE run_id = @run_id;

-- name: ListChosen :many
-- ListRuns for runs that are named, by their ids in hexadecimal: probes the key
-- of runs for each.
SELECT sqlc.embed(r), l.queue, l.job, l.priority, p.reason,
    CAST(coalesce((SELECT a.error FROM attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') AS TEXT) AS last_error
FROM runs r CROSS JOIN lanes l ON l.id = abs(r.lane) LEFT JOIN problems p ON p.run_id = r.id
WHERE r.id IN (SELECT unhex(value) FROM json_each(@ids))
    AND r.id < @below AND r.id >= @from_id
    AND (@states = '[]' OR r.state IN (SELECT value FROM json_each(@states)))
    AND (@jobs = '[]' OR l.job IN (SELECT value FROM json_each(@jobs)))
    AND (@queues = '[]' OR l.queue IN (SELECT value FROM json_each(@queues)))
    AND (@tag = '' OR EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = @tag))
ORDER BY r.id DESC LIMIT @most;
