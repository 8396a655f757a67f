-- What the verb doctor asks. Everything is read once, by a person's order.

-- name: ExamineLeases :one
-- Reads the whole table, a small one. Leases that nobody has taken back.
SELECT count(*) FROM leases WHERE abs(expires_at) < @before;

-- name: ExamineQueues :many
-- Reads the whole table, a small one.
SELECT name FROM queues WHERE paused ORDER BY name;

-- name: ExamineUndeclared :many
-- Jobs of which runs wait although no worker has declared them lately. Reads
-- lanes and jobs, small ones, and one row of the key of ready for each line.
SELECT DISTINCT l.job, l.queue, CAST(coalesce(j.declared_at, 0) AS INTEGER) AS declared_at
FROM lanes l LEFT JOIN jobs j ON j.name = l.job
WHERE (j.name IS NULL OR j.declared_at < @before)
    AND (EXISTS (SELECT 1 FROM ready r WHERE r.lane = l.id) OR EXISTS (SELECT 1 FROM ready r WHERE r.lane = -l.id))
ORDER BY l.job, l.queue LIMIT 100;

-- name: ExamineWorkers :one
-- Reads the whole table; processes that have declared themselves lately.
SELECT count(*) FROM workers WHERE declared_at > @after;

-- name: ExamineClock :one
-- The last row of runs, and the small tables leases and workers. The latest
-- instant that a process has stamped; 0: none has.
SELECT CAST(max(
    coalesce((SELECT r.created_at FROM runs r ORDER BY r.seq DESC LIMIT 1), 0),
    coalesce((SELECT max(l.acquired_at) FROM leases l), 0),
    coalesce((SELECT max(w.declared_at) FROM workers w), 0)
) AS INTEGER) AS latest;
