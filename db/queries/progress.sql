-- name: Report :execrows
-- runs_pkey, then progress_pkey. Locks the run while it is still the claim's, so
-- that it cannot be settled or taken back in between, then its row of progress;
-- whoever else holds the run is waited for, and the guard is then looked at
-- again. What is null stays as it is. No row: the run is no longer the claim's.
-- Twice: the same values.
WITH r AS MATERIALIZED (
    SELECT id FROM durable.runs WHERE id = @run_id AND claim_id = @claim_id::uuid AND state = 1 FOR NO KEY UPDATE
)
INSERT INTO durable.progress (run_id, updated_at, fraction, note, checkpoint)
SELECT r.id, now(), sqlc.narg(fraction)::real, sqlc.narg(note)::text, sqlc.narg(checkpoint)::text::json FROM r
ON CONFLICT (run_id) DO UPDATE SET updated_at = excluded.updated_at,
    fraction = coalesce(excluded.fraction, progress.fraction), note = coalesce(excluded.note, progress.note),
    checkpoint = coalesce(excluded.checkpoint, progress.checkpoint);

-- name: Checkpoint :many
-- progress_pkey. No locks.
SELECT checkpoint::text AS checkpoint FROM durable.progress WHERE run_id = @run_id AND checkpoint IS NOT NULL;

-- name: ProgressOf :many
-- progress_pkey. No locks.
SELECT run_id, fraction::real AS fraction, coalesce(note, '')::text AS note, updated_at
FROM durable.progress WHERE run_id = ANY (@ids::uuid[]) AND fraction IS NOT NULL;

-- name: ListChosen :many
-- ListRuns for runs that are named: probes runs_pkey for each. No locks.
SELECT r.id, l.job, l.queue, l.priority, r.state, r.attempt, r.max_attempts, r.crash_count, (r.lane < 0)::boolean AS isolated,
       r.due_at, r.created_at, r.started_at, r.finished_at, r.expires_at, coalesce(r.timeout, 0)::bigint AS timeout, r.fence, r.tags,
       r.args::text AS args, coalesce(r.result::text, '')::text AS result,
       coalesce((SELECT w.name FROM durable.workers w WHERE w.id = r.worker), '')::text AS worker,
       coalesce((SELECT s.name FROM durable.schedules s WHERE s.id = r.schedule), '')::text AS schedule,
       CASE WHEN r.state = 2 THEN '' ELSE coalesce((SELECT p.reason FROM durable.problems p WHERE p.run_id = r.id),
           (SELECT a.error FROM durable.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 1), '') END::text AS error
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
WHERE r.id = ANY (@ids::uuid[]) AND r.id < @before AND (@all_states::boolean OR r.state = ANY (@states::smallint[]))
  AND (@all_lanes::boolean OR abs(r.lane) = ANY (ARRAY(SELECT f.id FROM durable.lanes f
       WHERE (cardinality(@jobs::text[]) = 0 OR f.job = ANY (@jobs::text[])) AND (cardinality(@queues::text[]) = 0 OR f.queue = ANY (@queues::text[])))))
ORDER BY r.id DESC LIMIT @most;
