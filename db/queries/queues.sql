-- name: LockQueue :one
-- queues_pkey. Makes the row and locks it until the change has been made; lanes
-- are made under a lock of the same row (see ShareQueues).
INSERT INTO durable.queues (name) VALUES (@name) ON CONFLICT (name) DO UPDATE SET paused = queues.paused
RETURNING paused;

-- name: LockKnownQueue :many
-- queues_pkey. Locks the row, if there is one, until the change has been made;
-- makes none: a queue that nobody has paused or used stays unknown.
SELECT paused FROM durable.queues WHERE name = @name FOR UPDATE;

-- name: SetQueue :exec
-- queues_pkey; a row that LockQueue has locked.
UPDATE durable.queues SET paused = @paused WHERE name = @name;

-- name: SetLanesPaused :exec
-- Unique index lanes (queue, job, priority). Locks the lanes of one queue, which
-- nothing but a change of the same queue locks for an update. Twice: no rows.
UPDATE durable.lanes SET paused = @paused WHERE queue = @queue AND paused <> @paused;

-- name: ListQueues :many
-- Reads lanes and queues, small tables; ready_order for each lane: its first row,
-- and a count that stops at so many rows for each line. No locks.
WITH l AS (
    SELECT n.queue, n.id, h.pending, h.oldest FROM durable.lanes n
    CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM (SELECT FROM durable.ready r WHERE r.lane = n.id LIMIT @most::int) a)
             + (SELECT count(*) FROM (SELECT FROM durable.ready r WHERE r.lane = -n.id LIMIT @most::int) b) AS pending,
               least((SELECT r.due_at FROM durable.ready r WHERE r.lane = n.id ORDER BY r.due_at, r.run_id LIMIT 1),
                     (SELECT r.due_at FROM durable.ready r WHERE r.lane = -n.id ORDER BY r.due_at, r.run_id LIMIT 1)) AS oldest
    ) h
)
SELECT q.name::text AS name, coalesce(u.paused, false)::boolean AS paused, coalesce(sum(l.pending), 0)::bigint AS pending,
       coalesce(max(l.pending), 0)::bigint AS largest, coalesce(min(l.oldest), 'epoch')::timestamptz AS oldest
FROM (SELECT x.queue AS name FROM durable.lanes x UNION SELECT y.name FROM durable.queues y) q
LEFT JOIN durable.queues u ON u.name = q.name LEFT JOIN l ON l.queue = q.name
GROUP BY q.name, u.paused ORDER BY q.name;
