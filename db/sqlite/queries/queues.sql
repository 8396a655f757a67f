-- name: ListQueues :many
-- Reads lanes and queues, small tables.
SELECT
    named.name,
    CAST(
        coalesce(
            (
                SELECT CASE WHEN queues.cap IS NULL THEN queues.paused ELSE queues.stopped END
                FROM queues
                WHERE queues.name = named.name
            ),
            0
        ) AS INTEGER
    ) AS paused,
    CAST(
        coalesce(
            (
                SELECT limits.most
                FROM queues
                JOIN limits ON limits.name = 'queue:' || queues.name
                WHERE queues.name = named.name
                  AND queues.cap IS NOT NULL
            ),
            -1
        ) AS INTEGER
    ) AS cap
FROM (
    SELECT lanes.queue AS name
    FROM lanes
    UNION
    SELECT queues.name
    FROM queues
) named
ORDER BY named.name;

-- name: FindQueue :one
-- Whether an operator has paused it.
SELECT CAST(CASE WHEN cap IS NULL THEN paused ELSE stopped END AS INTEGER) AS paused
FROM queues
WHERE name = @name;

-- name: SetQueue :exec
-- A claim looks here in its own transaction.
INSERT INTO queues (name, paused)
VALUES (@name, @paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused OR cap IS NOT NULL,
    stopped = excluded.paused AND cap IS NOT NULL;

-- name: CapQueue :exec
-- Caps a queue by the gate of a limit, or lifts its cap. An operator's pause stays.
-- Idempotent: a repeat writes the same.
INSERT INTO queues (name, paused, cap)
VALUES (@name, @gate IS NOT NULL, @gate)
ON CONFLICT (name) DO UPDATE
SET cap = excluded.cap,
    paused = excluded.cap IS NOT NULL OR CASE WHEN cap IS NULL THEN paused ELSE stopped END,
    stopped = excluded.cap IS NOT NULL AND CASE WHEN cap IS NULL THEN paused ELSE stopped END;
