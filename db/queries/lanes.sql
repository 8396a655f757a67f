-- name: CreateLanes :exec
-- Index: the unique one of lanes (queue, job, priority). Locks: only what it inserts, in
-- the order given. ShareQueues goes before it, so that a pause is not missed.
-- Idempotent: a repeat skips conflicts.
INSERT INTO durable.lanes (queue, job, priority, paused)
SELECT
    wanted.queue,
    wanted.job,
    wanted.priority,
    coalesce(
        (
            SELECT queues.paused
            FROM durable.queues
            WHERE queues.name = wanted.queue
        ),
        false
    )
FROM (
    SELECT
        unnest(@queues::text[]) AS queue,
        unnest(@jobs::text[]) AS job,
        unnest(@priorities::smallint[]) AS priority
) wanted
WHERE NOT EXISTS (
    SELECT
    FROM durable.lanes
    WHERE lanes.queue = wanted.queue
      AND lanes.job = wanted.job
      AND lanes.priority = wanted.priority
)
ON CONFLICT DO NOTHING;

-- name: CapLanes :exec
-- The line of a queue's cap in each of its lanes, so that workers look for turns there
-- before a run has come into it. A newer lane gets its own with its first run
-- (AdoptRuns). Index: the unique one of lanes (queue, job, priority), queues_pkey. Locks:
-- only what it inserts, by lane. Idempotent: a repeat skips conflicts.
INSERT INTO durable.limit_lanes (limit_id, lane)
SELECT durable.limit_of(queues.cap), lanes.id
FROM durable.queues
JOIN durable.lanes ON lanes.queue = queues.name
WHERE queues.name = @queue
  AND queues.cap IS NOT NULL
ORDER BY lanes.id
ON CONFLICT DO NOTHING;

-- name: Lanes :many
-- Index: the unique one of lanes (queue, job, priority). Locks: none.
SELECT lanes.id, lanes.queue, lanes.job, lanes.priority
FROM (
    SELECT
        unnest(@queues::text[]) AS queue,
        unnest(@jobs::text[]) AS job,
        unnest(@priorities::smallint[]) AS priority
) wanted
JOIN durable.lanes ON lanes.queue = wanted.queue
    AND lanes.job = wanted.job
    AND lanes.priority = wanted.priority;

-- name: TouchQueues :exec
-- Index: queues_pkey. Locks: only what it inserts, by name.
-- Idempotent: a repeat skips conflicts.
INSERT INTO durable.queues (name)
SELECT DISTINCT unnest(@names::text[]) AS name
ORDER BY name
ON CONFLICT DO NOTHING;

-- name: ShareQueues :exec
-- Index: queues_pkey. Locks: the rows by name, FOR SHARE, against a pause or a
-- resumption until the lanes are stored: either the change sees the lanes, or the lanes
-- see the change.
SELECT
FROM durable.queues
WHERE name = ANY (@names::text[])
ORDER BY name
FOR SHARE;
