-- A row of attempts for each outcome of a CTE that is recorded.
-- of settled
INSERT INTO durable.attempts (
    run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log
)
SELECT
    settled.id,
    settled.fence,
    settled.attempt + durable.outcome_refund(@outcomes::jsonb, settled.id)::int,
    durable.outcome_kind(@outcomes::jsonb, settled.id)::smallint,
    @worker::text,
    settled.started_at,
    least(
        now(),
        settled.started_at
            + durable.outcome_took(@outcomes::jsonb, settled.id)::bigint
                * interval '1 microsecond'
    ),
    durable.outcome_error(@outcomes::jsonb, settled.id),
    durable.outcome_stack(@outcomes::jsonb, settled.id),
    durable.outcome_log(@outcomes::jsonb, settled.id)
FROM settled
WHERE durable.outcome_kind(@outcomes::jsonb, settled.id) IS NOT NULL
ON CONFLICT DO NOTHING
