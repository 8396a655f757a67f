-- name: CreateLanes :exec
-- Unique index lanes (queue, job, priority). Locks only what it inserts, in the
-- order given. Twice: conflicts are passed over.
INSERT INTO durable.lanes (queue, job, priority, paused)
SELECT w.queue, w.job, w.priority, coalesce((SELECT q.paused FROM durable.queues q WHERE q.name = w.queue), false)
FROM (SELECT unnest(@queues::text[]) queue, unnest(@jobs::text[]) job, unnest(@priorities::smallint[]) priority) w
WHERE NOT EXISTS (SELECT FROM durable.lanes l WHERE l.queue = w.queue AND l.job = w.job AND l.priority = w.priority)
ON CONFLICT DO NOTHING;

-- name: Lanes :many
-- Unique index lanes (queue, job, priority). No locks.
SELECT l.id, l.queue, l.job, l.priority
FROM (SELECT unnest(@queues::text[]) queue, unnest(@jobs::text[]) job, unnest(@priorities::smallint[]) priority) w
JOIN durable.lanes l ON l.queue = w.queue AND l.job = w.job AND l.priority = w.priority;
