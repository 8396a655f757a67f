-- name: ListHeads :many
-- Two probes of the primary key of ready for each served lane; no locks. An instant of
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
    ) AS isolated_due_at
FROM lanes
WHERE lanes.queue IN (SELECT value FROM json_each(@queues))
  AND lanes.job IN (SELECT value FROM json_each(@jobs))
  AND NOT EXISTS (
      SELECT 1
      FROM queues
      WHERE queues.name = lanes.queue
        AND queues.paused
  )
ORDER BY lanes.id;
