-- name: ListQueues :many
-- Reads lanes and queues, small tables, and of ready at most so many rows of each lane
-- and line.
SELECT
    named.name,
    CAST(
        coalesce(
            (
                SELECT queues.paused
                FROM queues
                WHERE queues.name = named.name
            ),
            0
        ) AS INTEGER
    ) AS paused,
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
SELECT paused
FROM queues
WHERE name = @name;

-- name: SetQueue :exec
-- A claim looks here in its own transaction.
INSERT INTO queues (name, paused)
VALUES (@name, @paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused;
