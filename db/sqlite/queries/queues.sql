-- name: ListQueues :many
-- Reads lanes and queues, small tables, and of ready at most so many rows of each lane
-- and line.
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
    ) AS cap,
    named.pending,
    named.oldest
FROM (
    SELECT
        lanes.queue AS name,
        CAST(
            sum(
                (SELECT count(*) FROM (SELECT 1 FROM ready WHERE ready.lane = lanes.id LIMIT @most))
                + (
                    SELECT count(*)
                    FROM (SELECT 1 FROM ready WHERE ready.lane = -lanes.id LIMIT @most)
                )
            ) AS INTEGER
        ) AS pending,
        CAST(
            coalesce(
                min(
                    min(
                        coalesce(
                            (
                                SELECT ready.due_at
                                FROM ready
                                WHERE ready.lane = lanes.id
                                ORDER BY ready.due_at
                                LIMIT 1
                            ),
                            9223372036854775807
                        ),
                        coalesce(
                            (
                                SELECT ready.due_at
                                FROM ready
                                WHERE ready.lane = -lanes.id
                                ORDER BY ready.due_at
                                LIMIT 1
                            ),
                            9223372036854775807
                        )
                    )
                ),
                0
            ) AS INTEGER
        ) AS oldest
    FROM lanes
    GROUP BY lanes.queue
    UNION ALL
    SELECT queues.name, 0, 9223372036854775807
    FROM queues
    WHERE NOT EXISTS (
        SELECT 1
        FROM lanes
        WHERE lanes.queue = queues.name
    )
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
