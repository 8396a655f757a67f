-- name: LockQueue :one
-- Creates the row of a queue, or locks it, until the change has committed; lanes are
-- inserted under a lock of the same row (see ShareQueues). Index: queues_pkey.
INSERT INTO durable.queues (name)
VALUES (@name)
ON CONFLICT (name) DO UPDATE
SET paused = queues.paused
RETURNING (CASE WHEN cap IS NULL THEN paused ELSE stopped END)::boolean AS paused;

-- name: LockKnownQueue :many
-- Locks the row, if there is one, until the change has committed; creates none: a queue
-- that has never been paused or used stays unknown. Index: queues_pkey.
SELECT (CASE WHEN cap IS NULL THEN paused ELSE stopped END)::boolean AS paused
FROM durable.queues
WHERE name = @name
FOR UPDATE;

-- name: SetQueue :exec
-- Index: queues_pkey. Locks: a row that LockQueue has locked.
UPDATE durable.queues
SET paused = @paused OR cap IS NOT NULL,
    stopped = @paused AND cap IS NOT NULL
WHERE name = @name;

-- name: CapQueue :exec
-- Caps a queue by the gate of a limit; 0: lifts its cap. An operator's pause stays.
-- Index: queues_pkey. Locks: a row that LockQueue has locked. Idempotent: a repeat writes the
-- same values.
UPDATE durable.queues
SET cap = nullif(@gate::bigint, 0),
    paused = @gate::bigint <> 0 OR CASE WHEN cap IS NULL THEN paused ELSE stopped END,
    stopped = @gate::bigint <> 0 AND CASE WHEN cap IS NULL THEN paused ELSE stopped END
WHERE name = @name;

-- name: SetLanesPaused :exec
-- Index: the unique one of lanes (queue, job, priority). Locks: the lanes of one queue,
-- which nothing but a change of the same queue locks for an update.
-- Idempotent: a repeat updates no rows.
UPDATE durable.lanes
SET paused = queues.paused
FROM durable.queues
WHERE queues.name = @queue
  AND lanes.queue = queues.name
  AND lanes.paused <> queues.paused;

-- name: ListQueues :many
-- Index: reads lanes and queues, small tables; limits_pkey. Locks: none.
SELECT
    named.name::text AS name,
    coalesce(
        CASE WHEN queues.cap IS NULL THEN queues.paused ELSE queues.stopped END,
        false
    )::boolean AS paused,
    coalesce(limits.most, -1)::int AS cap
FROM (
    SELECT lanes.queue AS name
    FROM durable.lanes
    UNION
    SELECT queues.name
    FROM durable.queues
) named
LEFT JOIN durable.queues ON queues.name = named.name
LEFT JOIN durable.limits ON limits.id = durable.limit_of(queues.cap)
ORDER BY named.name;
