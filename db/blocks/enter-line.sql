-- The row of ready that each unlimited run of a CTE gets.
-- of stored
INSERT INTO durable.ready (lane, due_at, run_id)
SELECT stored.lane, stored.due_at, stored.id
FROM stored
