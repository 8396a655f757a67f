-- name: ListHeads :many
-- Two probes of the primary key of ready for each served lane, and one of that of queues;
-- no locks. An instant of
-- -1: nothing waits there. Lower bounds would gain nothing: what is claimed leaves the
-- key.
SELECT
    lanes.id, lanes.queue, lanes.job, lanes.priority,
    CAST(
        coalesce(
            (
                SELECT ready.due_at
                FROM ready
                WHERE ready.lane = lanes.id
                ORDER BY ready.due_at, ready.run_id
                LIMIT 1
            ),
            -1
        ) AS INTEGER
    ) AS due_at,
    CAST(
        coalesce(
            (
                SELECT ready.due_at
                FROM ready
                WHERE ready.lane = -lanes.id
                ORDER BY ready.due_at, ready.run_id
                LIMIT 1
            ),
            -1
        ) AS INTEGER
    ) AS isolated_due_at,
    CAST(coalesce(queues.paused, 0) AS INTEGER) AS capped
FROM lanes
LEFT JOIN queues ON queues.name = lanes.queue
WHERE lanes.queue IN (SELECT value FROM json_each(@queues))
  AND lanes.job IN (SELECT value FROM json_each(@jobs))
  AND (
      queues.name IS NULL
      OR NOT queues.paused
      OR queues.cap IS NOT NULL AND NOT queues.stopped
  )
ORDER BY lanes.id;
