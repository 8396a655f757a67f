-- name: FindOperable :one
-- Served by the key of runs. What an operator's action depends on.
SELECT r.state, r.lane, r.due_at, r.claim_id, r.cancel, r.key, l.job
FROM runs r JOIN lanes l ON l.id = abs(r.lane) WHERE r.id = @id;

-- name: CancelPending :exec
-- The caller has found the run pending in the same transaction.
UPDATE runs SET state = 5, finished_at = @finished_at WHERE id = @id AND state = 0;

-- name: AskCancel :exec
-- The caller has found the run running in the same transaction.
UPDATE runs SET cancel = @reason WHERE id = @id AND state = 1;

-- name: InsertCancel :exec
-- Twice: the row is there.
INSERT INTO cancels (claim_id, run_id) VALUES (@claim_id, @run_id) ON CONFLICT DO NOTHING;

-- name: ScheduleOf :one
-- Served by the key of runs, and that of schedules.
SELECT s.name, s.spec, s.unfinished FROM runs r JOIN schedules s ON s.name = r.schedule WHERE r.id = @id;

-- name: RetryRun :exec
-- The caller has found the run dead or cancelled in the same transaction, and
-- puts it into ready. The claim's id goes, so that its late settle is refused.
UPDATE runs SET state = 0, due_at = @due_at, attempt = 0, crash_count = 0, lane = abs(lane), claim_id = NULL, cancel = NULL,
    expires_at = NULL, finished_at = NULL
WHERE id = @id AND state IN (4, 5);

-- name: DeleteRun :exec
-- The caller has found the run not running in the same transaction.
DELETE FROM runs WHERE id = @id AND state <> 1;

-- name: ReleaseKey :exec
-- Served by the primary key. The key that a run held, if it still does.
DELETE FROM unique_keys WHERE job = @job AND key = @key AND run_id = @run_id;

-- name: FindKeyHolder :one
-- Served by the primary key, then by the key of runs. A state of -1: the run is
-- no more.
SELECT k.run_id, k.held_to, CAST(coalesce((SELECT r.state FROM runs r WHERE r.id = k.run_id), -1) AS INTEGER) AS state
FROM unique_keys k WHERE k.job = @job AND k.key = @key;

-- name: RetakeKey :exec
-- The caller has found in the same transaction that nobody else holds the key.
INSERT INTO unique_keys (job, key, run_id, latest) VALUES (@job, @key, @run_id, @run_id)
ON CONFLICT (job, key) DO UPDATE SET run_id = excluded.run_id, latest = excluded.latest, held_to = NULL WHERE run_id <> excluded.run_id;

-- name: ListCancels :many
-- Served by the primary key of cancels, then by the key of runs.
SELECT c.run_id, CAST(r.cancel AS TEXT) AS reason FROM cancels c JOIN runs r ON r.id = c.run_id
WHERE c.claim_id = @claim_id AND r.claim_id = @claim_id AND r.state = 1 AND r.cancel IS NOT NULL;

-- name: AuditChange :exec
-- In the transaction of the change.
INSERT INTO audit (at, actor, kind, subject, action, detail) VALUES (@at, @actor, @kind, @subject, @action, @detail);

-- name: ListChanges :many
-- The primary key backwards. An empty text filters nothing.
SELECT id, at, actor, kind, subject, action, detail FROM audit
WHERE id < @before AND (@kind = '' OR kind = @kind) AND (@subject = '' OR subject = @subject)
ORDER BY id DESC LIMIT @most;

-- name: ListChangesOf :many
-- Served by audit_subject, backwards.
SELECT id, at, actor, kind, subject, action, detail FROM audit
WHERE id < @before AND kind = @kind AND subject = @subject
ORDER BY id DESC LIMIT @most;
