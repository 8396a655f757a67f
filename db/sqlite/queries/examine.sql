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
WHERE paused
ORDER BY name;

-- name: ExamineUndeclared :many
-- Jobs of which runs wait although no worker has declared them lately. Reads lanes and
-- jobs, small ones, and one row of the key of ready for each line.
SELECT DISTINCT
    lanes.job, lanes.queue,
    CAST(coalesce(jobs.declared_at, 0) AS INTEGER) AS declared_at
FROM lanes
LEFT JOIN jobs ON jobs.name = lanes.job
WHERE (jobs.name IS NULL OR jobs.declared_at < @before)
  AND (
      EXISTS (SELECT 1 FROM ready WHERE ready.lane = lanes.id)
      OR EXISTS (SELECT 1 FROM ready WHERE ready.lane = -lanes.id)
  )
ORDER BY lanes.job, lanes.queue
LIMIT 100;

-- name: ExamineWorkers :one
-- Reads the whole table; processes that have declared themselves lately.
SELECT count(*)
FROM workers
WHERE declared_at > @after;

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
