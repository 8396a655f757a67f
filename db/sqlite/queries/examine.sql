-- What the verb doctor asks. Every statement runs once, when an operator orders it.

-- name: ExamineLeases :one
-- Reads the whole table, a small one. Leases that have not been reclaimed.
SELECT count(*)
FROM leases
WHERE abs(expires_at) < @before;

-- name: ExamineQueues :many
-- Reads the whole table, a small one.
SELECT name
FROM queues
WHERE stopped
   OR paused AND cap IS NULL
ORDER BY name;

-- name: ExamineClock :one
-- The last row of runs, and the small tables leases and workers. The latest instant that
-- a process has stamped; 0: none has.
SELECT
    CAST(
        max(
            coalesce(
                (
                    SELECT runs.created_at
                    FROM runs
                    ORDER BY runs.seq DESC
                    LIMIT 1
                ),
                0
            ),
            coalesce((SELECT max(leases.acquired_at) FROM leases), 0),
            coalesce((SELECT max(workers.declared_at) FROM workers), 0)
        ) AS INTEGER
    ) AS latest;
