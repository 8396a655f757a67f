-- name: CreateLanes :exec
-- Unique index lanes (queue, job, priority). Locks only what it inserts, in the
-- order given. ShareQueues goes before it, so that a pause is not missed. Twice:
-- conflicts are passed over.
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

-- name: TouchQueues :exec
-- queues_pkey. Locks only what it inserts, by name. Twice: conflicts are passed
-- over.
INSERT INTO durable.queues (name) SELECT DISTINCT unnest(@names::text[]) AS name ORDER BY name ON CONFLICT DO NOTHING;

-- name: ShareQueues :exec
-- queues_pkey. Locks the rows by name against a pause or a resumption until the
-- lanes are made: those see the lanes, or the lanes see what they have done.
SELECT FROM durable.queues WHERE name = ANY (@names::text[]) ORDER BY name FOR SHARE;
