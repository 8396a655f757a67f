-- name: DeclareJobs :exec
-- jobs_pkey. Locks the rows in the order given (by name). Twice: the same rows.
INSERT INTO durable.jobs (name, queue, priority, max_attempts, timeout, on_crash)
SELECT u.name, u.queue, u.priority, u.max_attempts, u.timeout, u.on_crash
FROM (SELECT unnest(@names::text[]) AS name, unnest(@queues::text[]) queue, unnest(@priorities::smallint[]) priority,
             unnest(@max_attempts::int[]) max_attempts, unnest(@timeouts::bigint[]) timeout, unnest(@on_crashes::smallint[]) on_crash) u
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, on_crash = excluded.on_crash, declared_at = now();

-- name: DeclareSchedules :exec
-- schedules_name_key. Locks the rows in the order given (by name), so it waits
-- for a materializer that evaluates one. Twice: the hash is the stored one and
-- only declared_at changes.
INSERT INTO durable.schedules AS s (name, every, cron, zone, hash, job, queue, priority, max_attempts, timeout, on_crash, args, tags)
SELECT u.name, u.every, u.cron, u.zone, u.hash, u.job, u.queue, u.priority, u.max_attempts, u.timeout, u.on_crash, u.args::json, u.tags::text[]
FROM (SELECT unnest(@names::text[]) AS name, unnest(@everies::bigint[]) every, unnest(@crons::text[]) cron, unnest(@zones::text[]) AS zone,
             unnest(@hashes::text[]) hash, unnest(@jobs::text[]) job, unnest(@queues::text[]) queue, unnest(@priorities::smallint[]) priority,
             unnest(@max_attempts::int[]) max_attempts, unnest(@timeouts::bigint[]) timeout, unnest(@on_crashes::smallint[]) on_crash,
             unnest(@args::text[]) args, unnest(@tags::text[]) tags) u
ON CONFLICT (name) DO UPDATE SET declared_at = now(),
    generation = s.generation + (s.hash <> excluded.hash)::int,
    look_at = CASE WHEN s.hash <> excluded.hash THEN '-infinity' ELSE s.look_at END,
    next_at = CASE WHEN s.hash <> excluded.hash THEN NULL ELSE s.next_at END,
    fault = CASE WHEN s.hash <> excluded.hash THEN NULL ELSE s.fault END,
    every = CASE WHEN s.hash <> excluded.hash THEN excluded.every ELSE s.every END,
    cron = CASE WHEN s.hash <> excluded.hash THEN excluded.cron ELSE s.cron END,
    zone = CASE WHEN s.hash <> excluded.hash THEN excluded.zone ELSE s.zone END,
    job = CASE WHEN s.hash <> excluded.hash THEN excluded.job ELSE s.job END,
    queue = CASE WHEN s.hash <> excluded.hash THEN excluded.queue ELSE s.queue END,
    priority = CASE WHEN s.hash <> excluded.hash THEN excluded.priority ELSE s.priority END,
    max_attempts = CASE WHEN s.hash <> excluded.hash THEN excluded.max_attempts ELSE s.max_attempts END,
    timeout = CASE WHEN s.hash <> excluded.hash THEN excluded.timeout ELSE s.timeout END,
    on_crash = CASE WHEN s.hash <> excluded.hash THEN excluded.on_crash ELSE s.on_crash END,
    args = CASE WHEN s.hash <> excluded.hash THEN excluded.args ELSE s.args END,
    tags = CASE WHEN s.hash <> excluded.hash THEN excluded.tags ELSE s.tags END,
    hash = excluded.hash;

-- name: Jobs :many
-- jobs_pkey in order, a small table. No locks.
SELECT name, queue, priority, max_attempts, timeout, on_crash FROM durable.jobs ORDER BY name;
