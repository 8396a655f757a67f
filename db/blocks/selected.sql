-- Whether a run passes a filter: each condition that was given holds.
AND (@key::text = '' OR runs.key = @key::text)
AND durable.schedule_matches(runs.schedule, @schedule::text)
AND durable.worker_matches(runs.worker, @worker::text)
AND (
    sqlc.narg(ended_since)::timestamptz IS NULL
    OR runs.finished_at >= sqlc.narg(ended_since)::timestamptz
)
AND durable.metadata_matches(runs.metadata, @meta_names::text[], @meta_values::text[])
AND durable.fault_contains(runs.id, runs.state, @error_text::text)
AND durable.args_contain(runs.args, @args_texts::text[])
