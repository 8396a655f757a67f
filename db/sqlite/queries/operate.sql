-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: FindOperable :one
-- Index: the key of runs. What an operator's action depends on.
SELECT
    runs.state, runs.lane, runs.due_at, runs.claim_id, runs.cancel, runs.key, runs.limits,
    lanes.job,
    EXISTS (
        SELECT 1
        FROM problems
        WHERE problems.run_id = runs.id
          AND problems.acknowledged_at IS NOT NULL
    ) AS acknowledged,
    EXISTS (
        SELECT 1
        FROM edges
        WHERE edges.waiter = runs.id
          AND edges.name = ''
          AND edges.met = 0
          AND runs.state = 0
          AND runs.started_at IS NULL
    ) AS held
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = @id;

-- name: CancelPending :exec
-- The caller has found the run pending in the same transaction.
UPDATE runs
SET state = 5,
    finished_at = @finished_at
WHERE id = @id
  AND state = 0;

-- name: RequestCancel :exec
-- The caller has found the run running in the same transaction.
UPDATE runs
SET cancel = @reason
WHERE id = @id
  AND state = 1;

-- name: InsertCancel :exec
-- Idempotent: a repeat finds the row.
INSERT INTO cancels (claim_id, run_id)
VALUES (@claim_id, @run_id)
ON CONFLICT DO NOTHING;

-- name: ScheduleOf :one
-- Index: the key of runs, and that of schedules.
SELECT schedules.name, schedules.spec, schedules.unfinished
FROM runs
JOIN schedules ON schedules.name = runs.schedule
WHERE runs.id = @id;

-- name: RetryRun :exec
-- The caller has found the run dead or cancelled in the same transaction, and puts it
-- into ready. The claim's id goes, so that its late settle is refused.
UPDATE runs
SET state = 0,
    due_at = @due_at,
    attempt = 0,
    crash_count = 0,
    lane = abs(lane),
    claim_id = NULL,
    cancel = NULL,
    expires_at = NULL,
    finished_at = NULL
WHERE id = @id
  AND state IN (4, 5);

-- name: DeleteRun :exec
-- The caller has found the run not running in the same transaction.
DELETE FROM runs
WHERE id = @id
  AND state <> 1;

-- name: ReleaseKey :exec
-- Index: the primary key. The key that a run held, if it still does.
DELETE FROM unique_keys
WHERE job = @job
  AND key = @key
  AND run_id = @run_id;

-- name: FindKeyHolder :one
-- Index: the primary key, then the key of runs. A state of -1: the run is no more.
SELECT
    unique_keys.run_id, unique_keys.held_to,
    CAST(
        coalesce(
            (
                SELECT runs.state
                FROM runs
                WHERE runs.id = unique_keys.run_id
            ),
            -1
        ) AS INTEGER
    ) AS state
FROM unique_keys
WHERE unique_keys.job = @job
  AND unique_keys.key = @key;

-- name: RetakeKey :exec
-- The caller has found in the same transaction that no other run holds the key.
INSERT INTO unique_keys (job, key, run_id, latest)
VALUES (@job, @key, @run_id, @run_id)
ON CONFLICT (job, key) DO UPDATE
SET run_id = excluded.run_id,
    latest = excluded.latest,
    held_to = NULL
WHERE run_id <> excluded.run_id;

-- name: ListCancels :many
-- Index: the primary key of cancels, then the key of runs.
SELECT cancels.run_id, CAST(runs.cancel AS TEXT) AS reason
FROM cancels
JOIN runs ON runs.id = cancels.run_id
WHERE cancels.claim_id = @claim_id
  AND runs.claim_id = @claim_id
  AND runs.state = 1
  AND runs.cancel IS NOT NULL;

-- name: AuditChange :exec
-- In the transaction of the change.
INSERT INTO audit (at, actor, kind, subject, action, detail)
VALUES (@at, @actor, @kind, @subject, @action, @detail);

-- name: AddToBulk :execrows
-- Index: audit_subject. Adds to the row of a bulk change, if there is one.
UPDATE audit
SET runs = runs + @changed
WHERE kind = 'bulk'
  AND subject = @bulk;

-- name: AuditBulk :exec
-- The caller has found no row of the bulk change in the same transaction.
INSERT INTO audit (at, actor, kind, subject, action, detail, runs)
VALUES (@at, @actor, 'bulk', @bulk, @action, @detail, @changed);

-- name: FloorOfChanges :one
-- The primary key downwards, so many ids.
SELECT id
FROM audit
WHERE id < @before
ORDER BY id DESC
LIMIT 1
OFFSET @skip;

-- name: ListChanges :many
-- The primary key backwards, down to the floor. An empty text filters nothing.
SELECT id, at, actor, kind, subject, action, detail, runs
FROM audit
WHERE id < @before
  AND id >= @from_id
  AND at >= @since
  AND (@actor = '' OR actor = @actor)
  AND (@action = '' OR action = @action)
  AND (@kind = '' OR kind = @kind)
  AND (@subject = '' OR subject = @subject)
ORDER BY id DESC
LIMIT @most;

-- name: ListChangesOf :many
-- Index: audit_subject, backwards.
SELECT id, at, actor, kind, subject, action, detail, runs
FROM audit
WHERE id < @before
  AND id >= @from_id
  AND at >= @since
  AND (@actor = '' OR actor = @actor)
  AND (@action = '' OR action = @action)
  AND kind = @kind
  AND subject = @subject
ORDER BY id DESC
LIMIT @most;

-- name: Acknowledge :exec
-- The caller has found the run dead in the same transaction.
UPDATE problems
SET acknowledged_at = @now,
    acknowledged_by = @by
WHERE run_id = @run_id;

-- name: KeepOccurrence :exec
-- Copies the occurrence of a run to the one that is created after it. The caller has stored it
-- in the same transaction. Index: the key of runs.
UPDATE runs
SET occurs_at = (
    SELECT original.occurs_at
    FROM runs original
    WHERE original.id = @original
)
WHERE runs.id = @made;
