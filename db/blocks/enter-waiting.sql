-- The row of waiting that each limited run of a CTE gets: in the line of its first gate of which it
-- has no permit yet; with the permits of all of them, in the line of none.
-- of limited
INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
SELECT
    coalesce(
        CASE
            WHEN limited.strict IS NULL THEN limited.gates[1]
            ELSE (
                SELECT limited.gates[wanted.place]
                FROM pg_catalog.generate_subscripts(limited.gates, 1) AS wanted (place)
                WHERE (
                    limited.gates[wanted.place] <> ALL (limited.strict)
                    OR NOT EXISTS (
                        SELECT
                        FROM durable.permits
                        WHERE permits.gate = limited.gates[wanted.place]
                          AND permits.owner = limited.id
                    )
                  )
                  AND (
                    limited.gates[wanted.place] > 0
                    OR NOT EXISTS (
                        SELECT
                        FROM durable.permits
                        WHERE permits.gate = ANY (limited.strict)
                          AND permits.owner = limited.id
                    )
                  )
                ORDER BY wanted.place
                LIMIT 1
            )
        END,
        durable.all_permits()
    ),
    limited.lane,
    limited.due_at,
    limited.id,
    pg_catalog.cardinality(limited.gates) <> 1
        OR pg_catalog.cardinality(limited.limits) <> 1
        OR durable.says_more(limited.limits[1])
FROM limited
