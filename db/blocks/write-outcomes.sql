-- Gives runs what their worker reports. A run that would be pending again is cancelled if that was
-- requested.
UPDATE durable.runs
SET state = CASE
        WHEN cancel IS NOT NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
            THEN durable.cancelled()
        ELSE durable.outcome_state(@outcomes::jsonb, id)::smallint
    END,
    due_at = CASE
        WHEN cancel IS NULL AND durable.outcome_is_pending(@outcomes::jsonb, id)
            THEN now()
                + durable.outcome_delay(@outcomes::jsonb, id)::bigint * interval '1 microsecond'
        ELSE due_at
    END,
    attempt = attempt - durable.outcome_refund(@outcomes::jsonb, id)::int,
    result = durable.outcome_result(@outcomes::jsonb, id)::json,
    finished_at = CASE
        WHEN cancel IS NOT NULL OR durable.outcome_is_ended(@outcomes::jsonb, id) THEN now()
    END
WHERE id = ANY (@ids::uuid[])
  AND claim_id = @claim_id::uuid
  AND state = durable.running()
