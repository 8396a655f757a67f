-- name: SettleSuccesses :many
-- runs_pkey. Locks the runs that are still the claim's, in id order; whoever
-- else holds one (a reclaim) is waited for, and the guard is then looked at
-- again. The ids returned are the verdict. Twice or late: no rows.
UPDATE durable.runs SET state = 2, finished_at = now()
WHERE id = ANY (@ids::uuid[]) AND claim_id = @claim_id::uuid AND state = 1
RETURNING id;

-- name: SettleRuns :many
-- The same for every other outcome; what would be pending again is cancelled
-- where that was asked, as the row that was locked says. outcomes maps an id to [state, microseconds
-- until due again, attempts refunded, kind or null when not recorded, error,
-- stack, result as text, log lines]. One map, because unnest beside "= any" is a lottery
-- of plans. runs_pkey; locks as above, then inserts.
WITH u AS (
    UPDATE durable.runs SET
        state = CASE WHEN cancel IS NOT NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0' THEN 5 ELSE (@outcomes::jsonb -> (id::text) ->> 0)::smallint END,
        due_at = CASE WHEN cancel IS NULL AND @outcomes::jsonb -> (id::text) ->> 0 = '0' THEN now() + (@outcomes::jsonb -> (id::text) ->> 1)::bigint * interval '1 microsecond' ELSE due_at END,
        attempt = attempt - (@outcomes::jsonb -> (id::text) ->> 2)::int,
        result = (@outcomes::jsonb -> (id::text) ->> 6)::json,
        finished_at = CASE WHEN cancel IS NOT NULL OR @outcomes::jsonb -> (id::text) ->> 0 <> '0' THEN now() END
    WHERE id = ANY (@ids::uuid[]) AND claim_id = @claim_id::uuid AND state = 1
    RETURNING id, lane, state, due_at, attempt, fence, started_at, cancel
), q AS (
-- block: enter-line of u
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT u.lane, u.due_at, u.id FROM u
-- end
    WHERE u.state = 0
), a AS (
    INSERT INTO durable.attempts (run_id, fence, number, outcome, worker, started_at, ended_at, error, stack, log)
    SELECT u.id, u.fence, u.attempt, (@outcomes::jsonb -> (u.id::text) ->> 3)::smallint, @worker::text, u.started_at, now(),
           @outcomes::jsonb -> (u.id::text) ->> 4, @outcomes::jsonb -> (u.id::text) ->> 5, @outcomes::jsonb -> (u.id::text) ->> 7
    FROM u WHERE @outcomes::jsonb -> (u.id::text) ->> 3 IS NOT NULL
    ON CONFLICT DO NOTHING
), p AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT u.id, now(), u.state,
           CASE WHEN @outcomes::jsonb -> (u.id::text) ->> 0 = '0' THEN u.cancel ELSE @outcomes::jsonb -> (u.id::text) ->> 4 END, abs(u.lane)
    FROM u WHERE u.state >= 4
    ON CONFLICT DO NOTHING
)
SELECT u.id FROM u;

-- name: Unlease :exec
-- leases_pkey. Locks the lease with SKIP LOCKED: a reclaim that holds it ends it
-- itself. Goes with the last settle of a claim. Twice: no row.
-- A lease of more runs than its worker says it was given (@claimed; 0: it does
-- not say) is deleted only when none of its runs is still running: the lease of
-- a run that nobody knows of must expire, so that the run is found. The size of
-- an array of n ids is 16 n and 20 to 24 bytes, and is known without reading it;
-- only where it differs are the runs looked at, by runs_pkey.
DELETE FROM durable.leases
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.leases l WHERE l.claim_id = @claim_id::uuid FOR UPDATE SKIP LOCKED))
  AND (@claimed::int = 0 OR (pg_column_size(run_ids) - 20) / 16 = @claimed::int OR NOT EXISTS (
      SELECT FROM durable.runs b WHERE b.id = ANY (leases.run_ids) AND b.claim_id = leases.claim_id AND b.state = 1));

-- name: Verdicts :many
-- runs_pkey, no locks. What became of runs that a settle did not touch.
SELECT id, (claim_id IS NOT DISTINCT FROM @claim_id::uuid AND state <> 1)::boolean AS landed
FROM durable.runs WHERE id = ANY (@ids::uuid[]);

-- name: FreeRuns :many
-- runs_pkey. Locks the runs that are still the claim's and that nobody else
-- holds; free tells them from those that are held.
WITH f AS MATERIALIZED (
    SELECT id FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND claim_id = @claim_id::uuid AND state = 1 FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id, (id = ANY (ARRAY(SELECT f.id FROM f)))::boolean AS free
FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND claim_id = @claim_id::uuid AND state = 1;
