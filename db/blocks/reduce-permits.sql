-- Takes the runs of the CTE gone out of permits, with their places. A permit whose places are as
-- many as its runs has one for each; else their weights say how many.
SET (runs, k) = (
    SELECT
        coalesce(array_agg(staying.run ORDER BY staying.run), '{}'),
        CASE
            WHEN permits.k = cardinality(permits.runs) THEN count(*)
            ELSE coalesce(sum(durable.weight_of(staying.run, permits.gate)), 0)
        END
    FROM unnest(permits.runs) AS staying (run)
    WHERE staying.run NOT IN (SELECT gone.id FROM gone)
)
