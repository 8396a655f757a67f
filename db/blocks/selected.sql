-- Whether a run passes a filter: each condition that was given holds.
AND (@key::text = '' OR runs.key = @key::text)
AND (
    @schedule::text = ''
    OR runs.schedule = (
        SELECT schedules.id
        FROM durable.schedules
        WHERE schedules.name = @schedule::text
    )
)
AND (
    @worker::text = ''
    OR runs.worker = ANY (ARRAY(
        SELECT workers.id
        FROM durable.workers
        WHERE workers.name = @worker::text
    ))
)
AND (
    sqlc.narg(ended_since)::timestamptz IS NULL
    OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
)
AND (
    pg_catalog.cardinality(@meta_names::text[]) = 0
    OR runs.metadata IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM (
            SELECT
                pg_catalog.unnest(@meta_names::text[]) AS name,
                pg_catalog.unnest(@meta_values::text[]) AS value
        ) wanted
        WHERE runs.metadata ->> wanted.name IS DISTINCT FROM wanted.value
    )
)
AND (
    @error_text::text = ''
    OR runs.state <> durable.succeeded() AND pg_catalog.strpos(
        coalesce(
            (
                SELECT problems.reason
                FROM durable.problems
                WHERE problems.run_id = runs.id
            ),
            (
                SELECT attempts.error
                FROM durable.attempts
                WHERE attempts.run_id = runs.id
                ORDER BY attempts.fence DESC
                LIMIT 1
            ),
            ''
        ),
        @error_text::text
    ) > 0
)
AND (
    pg_catalog.cardinality(@args_texts::text[]) = 0
    OR EXISTS (
        SELECT
        FROM pg_catalog.unnest(@args_texts::text[]) AS wanted (spelling)
        WHERE pg_catalog.strpos(runs.args::text, wanted.spelling) > 0
    )
)
