-- name: ListSchedules :many
-- Reads the whole table, a small one. An empty JSON array filters nothing.
SELECT
    name, generation, spec, job, queue, priority, args, max_attempts, timeout, on_crash, tags,
    next_at, waiting, paused,
    coalesce(paused_by, '') AS paused_by,
    edited, declared_at,
    coalesce(fault, '') AS fault
FROM schedules
WHERE @names = '[]' OR name IN (
      SELECT value
      FROM json_each(@names)
  )
ORDER BY name;

-- name: LastGeneration :one
-- Index: runs_occurrence: of a schedule of this name that is no more.
SELECT CAST(coalesce(max(generation), 0) AS INTEGER) AS generation
FROM runs
WHERE schedule = @schedule;

-- name: PassOver :exec
-- What is due of a schedule that is about to be changed.
INSERT INTO skips (schedule, first_at, last_at, reason)
SELECT name, next_at, @now, 'changed'
FROM schedules
WHERE name = @name
  AND paused = 0
  AND next_at <= @now;

-- name: PauseSchedule :exec
UPDATE schedules
SET paused = 1,
    paused_by = @paused_by,
    look_at = NULL
WHERE name = @name;

-- name: ResumeSchedule :exec
-- It is planned from now on.
UPDATE schedules
SET paused = 0,
    paused_by = NULL,
    look_at = @now,
    next_at = NULL,
    waiting = 0,
    fault = NULL
WHERE name = @name;

-- name: DeleteSchedule :exec
DELETE FROM schedules
WHERE name = @name;

-- name: DeleteSkips :exec
DELETE FROM skips
WHERE schedule = @schedule;

-- name: SetUnfinished :exec
UPDATE schedules
SET unfinished = @unfinished
WHERE name = @name;

-- name: Audit :exec
-- In the transaction of the change.
INSERT INTO audit (at, actor, kind, subject, action)
VALUES (@at, @actor, 'schedule', @subject, @action);

-- name: PastOccurrences :many
-- Index: runs_occurrence, backwards.
SELECT id, state, due_at, coalesce(occurrence, '') AS occurrence
FROM runs
WHERE schedule = @schedule
  AND occurrence IS NOT NULL
ORDER BY generation DESC, occurrence DESC
LIMIT @most;

-- name: PastRequests :many
-- Index: runs_occurrence: the runs that operators asked for have none.
SELECT id, state, due_at
FROM runs
WHERE schedule = @schedule
  AND occurrence IS NULL
ORDER BY due_at DESC
LIMIT @most;

-- name: PastSkips :many
-- Index: skips_schedule, backwards.
SELECT first_at, last_at, reason
FROM skips
WHERE schedule = @schedule
ORDER BY seq DESC
LIMIT @most;

-- name: PastChanges :many
-- Index: audit_subject, backwards.
SELECT at, actor, action
FROM audit
WHERE kind = 'schedule'
  AND subject = @subject
ORDER BY id DESC
LIMIT @most;
