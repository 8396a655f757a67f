-- Whether the retention of a run that has ended is over: that of its job, or of its state.
AND runs.finished_at < now() - coalesce(
    (@own::jsonb ->> (abs(runs.lane)::text))::bigint,
    CASE runs.state WHEN durable.dead() THEN @dead::bigint ELSE @ended::bigint END
) * interval '1 microsecond'
