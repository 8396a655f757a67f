-- A turn for each gate in which a CTE has freed places, on the line of its limit.
-- of touched
INSERT INTO durable.turns (line, due_at, gate)
SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
FROM (SELECT DISTINCT touched.gate FROM touched) freed
