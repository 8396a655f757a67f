-- The lines of turns of those gates of a CTE for which a run waits. Blocked are those in whose
-- gates few or no places were free before, or whose runs may need several: runs of the others
-- wait only until a worker looks.
-- of touched
SELECT
    durable.line_of_gate(touched.gate) AS line,
    last.more OR durable.used(touched.gate) >= durable.few_free_from(touched.gate) AS blocked
FROM touched
CROSS JOIN LATERAL (
    (
        SELECT waiting.more
        FROM durable.waiting
        WHERE waiting.gate = touched.gate
        ORDER BY
            waiting.gate DESC, waiting.lane DESC, waiting.due_at DESC, waiting.run_id DESC
        LIMIT 1
    )
    UNION ALL
    (
        SELECT true
        FROM durable.rounds
        WHERE rounds.gate = touched.gate
        LIMIT 1
    )
    LIMIT 1
) last
