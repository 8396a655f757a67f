-- name: ListHeads :many
-- Two probes of the primary key of ready for each served lane; no locks. An
-- instant of -1: nothing waits there. Lower bounds would save nothing: what is
-- claimed leaves the key.
SELECT l.id, l.queue, l.job, l.priority,
    CAST(coalesce((SELECT r.due_at FROM ready r WHERE r.lane = l.id ORDER BY r.due_at, r.run_id LIMIT 1), -1) AS INTEGER) AS due_at,
    CAST(coalesce((SELECT i.due_at FROM ready i WHERE i.lane = -l.id ORDER BY i.due_at, i.run_id LIMIT 1), -1) AS INTEGER) AS isolated_due_at
FROM lanes l
WHERE l.queue IN (SELECT value FROM json_each(@queues)) AND l.job IN (SELECT value FROM json_each(@jobs))
    AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = l.queue AND q.paused)
ORDER BY l.id;
