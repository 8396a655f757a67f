-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
-- What decides about one run.

-- name: FindLaneOfRun :one
-- Index: the keys of runs and lanes.
SELECT runs.lane, lanes.queue, lanes.job, lanes.priority
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = @id;

-- name: ListNearLanes :many
-- The lanes of a priority, or of higher ones, on queues that are not paused: a job's on a
-- queue first, then those of the queue. Reads lanes, a small table.
SELECT
    lanes.id, lanes.queue, lanes.job, lanes.priority,
    CAST(lanes.queue = @queue AS INTEGER) AS near,
    CAST(lanes.queue = @queue AND lanes.job = @job AS INTEGER) AS own
FROM lanes
WHERE lanes.priority >= @priority
  AND NOT EXISTS (
      SELECT 1
      FROM queues
      WHERE queues.name = lanes.queue
        AND queues.paused
        AND (queues.cap IS NULL OR queues.stopped)
  )
ORDER BY own DESC, near DESC, lanes.priority DESC, lanes.id
LIMIT @most;

-- name: CountAhead :one
-- Index: the primary key of ready, one range of a line, at most so many rows.
SELECT count(*)
FROM (
    SELECT 1
    FROM ready
    WHERE ready.lane = @lane
      AND (ready.due_at, ready.run_id) < (CAST(@to_due AS INTEGER), CAST(@to_id AS BLOB))
    LIMIT @most
);

-- name: FindLeaseOfRun :one
-- Index: the primary keys of runs and leases. The lease under which a run executes.
SELECT leases.worker_name, leases.worker_instance, leases.acquired_at, leases.expires_at
FROM runs
JOIN leases ON leases.claim_id = runs.claim_id
WHERE runs.id = @id
  AND runs.state = 1;

-- name: FindCancel :one
-- Index: the key of runs.
SELECT CAST(coalesce(runs.cancel, '') AS TEXT) AS cancel
FROM runs
WHERE runs.id = @id
  AND runs.state = 1;

-- name: ListDead :many
-- The dead runs that ended last, of those that were acknowledged or not, among so many ended
-- ones. Index: problems_ended backwards; then the keys of runs and lanes.
SELECT
    newest.run_id, lanes.job, lanes.queue, newest.ended_at, newest.reason,
    newest.acknowledged_at, newest.acknowledged_by
FROM (
    SELECT
        problems.run_id, problems.ended_at, problems.reason, problems.acknowledged_at,
        problems.acknowledged_by
    FROM problems
    WHERE problems.ended_at >= @since
    ORDER BY problems.ended_at DESC, problems.run_id DESC
    LIMIT @examined
) newest
CROSS JOIN runs ON runs.id = newest.run_id
CROSS JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.state = 4
  AND (newest.acknowledged_at IS NULL) = CAST(@open AS INTEGER)
  AND (
      @jobs = '[]'
      OR lanes.job IN (SELECT value FROM json_each(@jobs))
  )
  AND (
      @queues = '[]'
      OR lanes.queue IN (SELECT value FROM json_each(@queues))
  )
ORDER BY newest.ended_at DESC, newest.run_id DESC
LIMIT @most;

-- name: ListLaneStats :many
-- Index: the primary key, one range.
SELECT tally
FROM stats
WHERE span = @span
  AND queue = @queue
  AND job = @job
  AND at >= @since;

-- name: CountWaitingLanes :many
-- Of each lane the runs that wait for limits, of at most so many in all. Index: the primary
-- key of waiting.
SELECT
    CAST(abs(waiters.lane) AS INTEGER) AS lane,
    count(*) AS pending,
    CAST(coalesce(sum(waiters.due_at <= CAST(@now AS INTEGER)), 0) AS INTEGER) AS due,
    CAST(coalesce(sum(waiters.lane < 0), 0) AS INTEGER) AS isolated,
    CAST(min(waiters.due_at) AS INTEGER) AS oldest
FROM (
    SELECT waiting.lane, waiting.due_at
    FROM waiting
    LIMIT @most
) waiters
GROUP BY abs(waiters.lane);
