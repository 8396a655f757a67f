-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: ListWorkers :many
-- A scan of workers, of which there are few.
SELECT
    name, instance, started_at,
    CAST(coalesce(reported_at, 0) AS INTEGER) AS reported_at,
    CAST(report AS TEXT) AS report
FROM workers
WHERE report IS NOT NULL;

-- name: CountLeases :many
-- A scan of leases, of which there are few.
SELECT worker_instance, count(*) AS leases
FROM leases
WHERE expires_at > @now
GROUP BY worker_instance;

-- name: ListHeld :many
-- A scan of leases, of which there are few.
SELECT claim_id, run_ids
FROM leases
LIMIT @most;

-- name: FindRunningLane :one
-- Index: runs_id. The lane of a run that a claim is executing.
SELECT CAST(abs(runs.lane) AS INTEGER) AS lane
FROM runs
WHERE runs.id = @id
  AND runs.claim_id = @claim_id
  AND runs.state = 1;

-- name: SurveyLanes :many
-- Reads lanes and queues, small tables, and of ready at most so many rows of each line.
SELECT
    lanes.id, lanes.queue, lanes.job,
    CAST(
        coalesce(
            (
                SELECT CASE WHEN queues.cap IS NULL THEN queues.paused ELSE queues.stopped END
                FROM queues
                WHERE queues.name = lanes.queue
            ),
            0
        ) AS INTEGER
    ) AS paused,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM ready
            WHERE ready.lane = lanes.id
            LIMIT @most
        )
    ) AS ordinary,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM ready
            WHERE ready.lane = -lanes.id
            LIMIT @most
        )
    ) AS isolated,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM ready
            WHERE ready.lane = lanes.id
              AND ready.due_at <= @now
            LIMIT @most
        )
    ) + (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM ready
            WHERE ready.lane = -lanes.id
              AND ready.due_at <= @now
            LIMIT @most
        )
    ) AS due,
    CAST(
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
        ) AS INTEGER
    ) AS oldest
FROM lanes
ORDER BY lanes.id
LIMIT @lanes;

-- name: CountExpired :one
-- A scan of leases, of which there are few.
SELECT count(*)
FROM leases
WHERE abs(expires_at) < @before;
