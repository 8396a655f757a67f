-- A row of problems for each run of a CTE that has ended dead or cancelled.
-- of settled
INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
SELECT
    settled.id,
    now(),
    settled.state,
    CASE
        WHEN durable.outcome_is_pending(@outcomes::jsonb, settled.id) THEN settled.cancel
        ELSE durable.outcome_error(@outcomes::jsonb, settled.id)
    END,
    abs(settled.lane)
FROM settled
WHERE durable.is_problem(settled.state)
ON CONFLICT DO NOTHING
