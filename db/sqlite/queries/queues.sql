-- name: ListQueues :many
-- Reads lanes and queues, small tables, and of ready at most so many rows of each
-- lane and line.
SELECT q.name, CAST(coalesce((SELECT u.paused FROM queues u WHERE u.name = q.name), 0) AS INTEGER) AS paused, q.pending, q.oldest
FROM (
    SELECT l.queue AS name,
        CAST(sum((SELECT count(*) FROM (SELECT 1 FROM ready r WHERE r.lane = l.id LIMIT @most))
            + (SELECT count(*) FROM (SELECT 1 FROM ready i WHERE i.lane = -l.id LIMIT @most))) AS INTEGER) AS pending,
        CAST(coalesce(min(min(coalesce((SELECT a.due_at FROM ready a WHERE a.lane = l.id ORDER BY a.due_at LIMIT 1), 9223372036854775807),
            coalesce((SELECT b.due_at FROM ready b WHERE b.lane = -l.id ORDER BY b.due_at LIMIT 1), 9223372036854775807))), 0) AS INTEGER) AS oldest
    FROM lanes l GROUP BY l.queue
    UNION ALL
    SELECT n.name, 0, 9223372036854775807 FROM queues n WHERE NOT EXISTS (SELECT 1 FROM lanes o WHERE o.queue = n.name)
) q ORDER BY q.name;

-- name: FindQueue :one
SELECT paused FROM queues WHERE name = @name;

-- name: SetQueue :exec
-- A claim looks here in its own transaction.
INSERT INTO queues (name, paused) VALUES (@name, @paused) ON CONFLICT (name) DO UPDATE SET paused = excluded.paused;
