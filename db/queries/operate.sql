-- name: Operable :many
-- runs_pkey, lanes_pkey. No locks: what is read here decides only which of the
-- statements below is tried, and each looks again.
SELECT r.id, r.state, r.lane, r.due_at, coalesce(r.key, '')::text AS key, (r.key IS NOT NULL)::boolean AS keyed, l.job
FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane) WHERE r.id = ANY (@ids::uuid[]);

-- name: CancelPending :many
-- ready_order, then runs_pkey: one probe for each run. Locks each run together
-- with its row of ready and passes over the pairs of which a claim, another
-- operator or a user's transaction holds either. Who has the row of ready has
-- a pending run. Twice: no row of ready.
WITH d AS MATERIALIZED (
    DELETE FROM durable.ready WHERE ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM (SELECT unnest(@lanes::int[]) lane, unnest(@dues::timestamptz[]) due_at, unnest(@ids::uuid[]) run_id) w,
             LATERAL (SELECT r.ctid FROM durable.ready r JOIN durable.runs b ON b.id = r.run_id
                      WHERE r.lane = w.lane AND r.due_at = w.due_at AND r.run_id = w.run_id
                      FOR NO KEY UPDATE OF r, b SKIP LOCKED) x))
    RETURNING run_id
), u AS (
    UPDATE durable.runs SET state = 5, finished_at = now()
    WHERE id = ANY (ARRAY(SELECT d.run_id FROM d)) AND state = 0
    RETURNING id, lane
), p AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane) SELECT u.id, now(), 5, @reason::text, abs(u.lane) FROM u
    ON CONFLICT DO NOTHING
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', u.id::text, 'cancel', nullif(@detail::text, '')::json FROM u
)
SELECT u.id FROM u;

-- name: AskCancels :many
-- runs_pkey. Locks the running runs that nobody else holds. cancels only tells
-- the worker. Twice: the reason stands, and nothing is written down again.
WITH k AS MATERIALIZED (
    SELECT id, claim_id, (cancel IS NULL) AS fresh FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND state = 1 FOR NO KEY UPDATE SKIP LOCKED
), u AS (
    UPDATE durable.runs SET cancel = @reason::text WHERE id = ANY (ARRAY(SELECT k.id FROM k WHERE k.fresh)) AND state = 1 RETURNING id
), c AS (
    INSERT INTO durable.cancels (claim_id, run_id) SELECT k.claim_id, k.id FROM k WHERE k.fresh ON CONFLICT DO NOTHING
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', u.id::text, 'cancel', nullif(@detail::text, '')::json FROM u
)
SELECT k.id FROM k;

-- name: RetryRuns :many
-- runs_pkey, problems_pkey. Locks the dead and cancelled runs that nobody else
-- holds; those with a unique key only when keyed says that the caller has locked
-- it. Twice: they are pending.
WITH k AS MATERIALIZED (
    SELECT id FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND state IN (4, 5) AND (key IS NULL OR @keyed::boolean) FOR NO KEY UPDATE SKIP LOCKED
), u AS (
    UPDATE durable.runs SET state = 0, due_at = now(), attempt = 0, crash_count = 0, lane = abs(lane), claim_id = NULL, cancel = NULL,
        expires_at = NULL, finished_at = NULL
    WHERE id = ANY (ARRAY(SELECT k.id FROM k)) AND state IN (4, 5)
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of u
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT u.lane, u.due_at, u.id FROM u
-- end
), p AS (
    DELETE FROM durable.problems WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', u.id::text, 'retry', nullif(@detail::text, '')::json FROM u
)
SELECT u.id FROM u;

-- name: CountRetried :exec
-- runs_pkey, schedules_pkey. After RetryRuns in its transaction: the schedules of
-- runs that are pending again count them as unfinished. Locks the schedules, and
-- waits for whoever evaluates them, within the lock_timeout. Twice: each counts
-- once.
UPDATE durable.schedules s SET unfinished = ARRAY(SELECT c.id FROM (SELECT unnest(s.unfinished) AS id UNION SELECT unnest(w.ids)) c ORDER BY c.id)
FROM (SELECT r.schedule, array_agg(r.id) AS ids FROM durable.runs r WHERE r.id = ANY (@ids::uuid[]) AND r.schedule IS NOT NULL AND r.state = 0 GROUP BY r.schedule) w
WHERE s.id = w.schedule;

-- name: DeletePending :many
-- CancelPending, but the runs go with all that belongs to them: attempts_pkey,
-- problems_pkey, progress_pkey. keyed as in RetryRuns. Twice: no row of ready.
WITH d AS MATERIALIZED (
    DELETE FROM durable.ready WHERE ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM (SELECT unnest(@lanes::int[]) lane, unnest(@dues::timestamptz[]) due_at, unnest(@ids::uuid[]) run_id) w,
             LATERAL (SELECT r.ctid FROM durable.ready r JOIN durable.runs b ON b.id = r.run_id
                      WHERE r.lane = w.lane AND r.due_at = w.due_at AND r.run_id = w.run_id AND (b.key IS NULL OR @keyed::boolean)
                      FOR UPDATE OF r, b SKIP LOCKED) x))
    RETURNING run_id
), u AS (
    DELETE FROM durable.runs WHERE id = ANY (ARRAY(SELECT d.run_id FROM d)) AND state = 0 RETURNING id
), t AS (
    DELETE FROM durable.attempts WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), p AS (
    DELETE FROM durable.problems WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), g AS (
    DELETE FROM durable.progress WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', u.id::text, 'delete', nullif(@detail::text, '')::json FROM u
)
SELECT u.id FROM u;

-- name: DeleteFinished :many
-- runs_pkey, attempts_pkey, problems_pkey, progress_pkey. Locks the finished runs
-- that nobody else holds. keyed as in RetryRuns. Twice: no rows.
WITH k AS MATERIALIZED (
    SELECT id FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND state IN (2, 4, 5) AND (key IS NULL OR @keyed::boolean) FOR UPDATE SKIP LOCKED
), u AS (
    DELETE FROM durable.runs WHERE id = ANY (ARRAY(SELECT k.id FROM k)) AND state IN (2, 4, 5) RETURNING id
), t AS (
    DELETE FROM durable.attempts WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), p AS (
    DELETE FROM durable.problems WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), g AS (
    DELETE FROM durable.progress WHERE run_id = ANY (ARRAY(SELECT u.id FROM u))
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', u.id::text, 'delete', nullif(@detail::text, '')::json FROM u
)
SELECT u.id FROM u;

-- name: LockKey :one
-- unique_keys_pkey. Waits for whoever holds the row, within the lock_timeout; the
-- transaction holds nothing else yet. Makes the row when nobody has the key.
-- Twice: the same row.
INSERT INTO durable.unique_keys (job, key, run_id, latest) VALUES (@job, @key, @run_id, @run_id)
ON CONFLICT (job, key) DO UPDATE SET run_id = unique_keys.run_id
RETURNING run_id, coalesce(held_to > now(), false)::boolean AS held;

-- name: LockKeyOf :exec
-- unique_keys_pkey. Waits likewise; no row: nobody has the key.
SELECT FROM durable.unique_keys WHERE job = @job AND key = @key FOR UPDATE;

-- name: Unfinished :one
-- runs_pkey. No locks: asked while the row of the key is locked, so that whoever
-- would make the run unfinished again waits.
SELECT EXISTS (SELECT FROM durable.runs WHERE id = @id AND state < 2)::boolean AS unfinished;

-- name: TakeKey :exec
-- unique_keys_pkey; a row that LockKey has locked.
UPDATE durable.unique_keys SET run_id = @run_id, latest = @run_id, held_to = NULL WHERE job = @job AND key = @key AND run_id <> @run_id;

-- name: ReleaseKey :exec
-- unique_keys_pkey; a row that LockKeyOf has locked. Twice: no row.
DELETE FROM durable.unique_keys WHERE job = @job AND key = @key AND run_id = @run_id;

-- name: Cancels :many
-- cancels_pkey, then runs_pkey. No locks. Twice: the same rows.
SELECT c.claim_id, c.run_id, r.cancel::text AS reason
FROM durable.cancels c JOIN durable.runs r ON r.id = c.run_id
WHERE c.claim_id = ANY (@claims::uuid[]) AND r.claim_id = c.claim_id AND r.state = 1 AND r.cancel IS NOT NULL
ORDER BY c.claim_id, c.run_id;

-- name: AuditChange :exec
-- In the transaction of the change.
INSERT INTO durable.audit (actor, kind, subject, action, detail)
VALUES (@actor, @kind, @subject, @action, nullif(@detail::text, '')::json);

-- name: Changes :many
-- audit_pkey backwards; an empty text filters nothing, so a filter that few rows
-- pass reads many. No locks.
SELECT id, at, actor, kind, subject, action, coalesce(detail::text, '')::text AS detail FROM durable.audit
WHERE id < @before AND (@kind::text = '' OR kind = @kind) AND (@subject::text = '' OR subject = @subject)
ORDER BY id DESC LIMIT @most;

-- name: ChangesOf :many
-- audit_subject backwards. No locks.
SELECT id, at, actor, kind, subject, action, coalesce(detail::text, '')::text AS detail FROM durable.audit
WHERE id < @before AND kind = @kind AND subject = @subject
ORDER BY id DESC LIMIT @most;
