-- name: Run :one
-- runs_pkey, lanes_pkey, workers_pkey, problems_pkey, attempts_pkey. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id = @id;

-- name: Attempts :many
-- attempts_pkey. No locks.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log FROM durable.attempts WHERE run_id = @run_id ORDER BY fence;

-- name: ListRuns :many
-- runs_pkey backwards from the cursor; a filter that few runs pass reads many,
-- so it runs under a statement timeout. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id < @before AND (@all_states::boolean OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (ARRAY(SELECT f.id FROM durable.lanes f
       WHERE (cardinality(@jobs::text[]) = 0 OR f.job = ANY (@jobs::text[])) AND (cardinality(@queues::text[]) = 0 OR f.queue = ANY (@queues::text[])))))
ORDER BY r.id DESC LIMIT @most;

-- name: ListProblems :many
-- ListRuns for states that have rows in problems: problems_pkey backwards, then
-- runs_pkey. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.problems b JOIN durable.runs r ON r.id = b.run_id JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE b.run_id < @before AND (@all_states::boolean OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (ARRAY(SELECT f.id FROM durable.lanes f
       WHERE (cardinality(@jobs::text[]) = 0 OR f.job = ANY (@jobs::text[])) AND (cardinality(@queues::text[]) = 0 OR f.queue = ANY (@queues::text[])))))
ORDER BY b.run_id DESC LIMIT @most;

-- name: ListRunning :many
-- ListRuns for what is running: reads the leases, then runs_pkey. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       coalesce(r.key, '')::text AS key, r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id = ANY (ARRAY(SELECT unnest(b.run_ids) FROM durable.leases b)) AND r.id < @before AND (@all_states::boolean OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (ARRAY(SELECT f.id FROM durable.lanes f
       WHERE (cardinality(@jobs::text[]) = 0 OR f.job = ANY (@jobs::text[])) AND (cardinality(@queues::text[]) = 0 OR f.queue = ANY (@queues::text[])))))
ORDER BY r.id DESC LIMIT @most;

-- name: CountRuns :many
-- Reads all of runs. No locks.
SELECT state, count(*) AS number FROM durable.runs GROUP BY state;
