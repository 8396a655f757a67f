-- Rows of limit_lanes that make workers read the lines in which limited runs of a CTE wait.
-- of replaced
INSERT INTO durable.limit_lanes (limit_id, lane)
SELECT DISTINCT durable.limit_of(abs(own.gate)), replaced.lane
FROM replaced
CROSS JOIN LATERAL pg_catalog.unnest(replaced.gates) AS own (gate)
WHERE NOT EXISTS (
    SELECT
    FROM durable.limit_lanes known
    WHERE known.limit_id = durable.limit_of(abs(own.gate))
      AND known.lane = replaced.lane
)
ORDER BY 1, 2
ON CONFLICT DO NOTHING
