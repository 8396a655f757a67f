-- A turn for each gate, lane and instant at which runs of a CTE wait from now on.
-- of lined
INSERT INTO durable.turns (line, due_at, gate)
SELECT DISTINCT lined.lane, lined.due_at, lined.gate
FROM lined
