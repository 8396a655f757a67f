-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: DueSchedules :many
-- Index: schedules_look.
SELECT
    name, hash, generation, spec, job, queue, priority, args, max_attempts, timeout, on_crash, tags,
    next_at, look_at, waiting, unfinished
FROM schedules
WHERE look_at IS NOT NULL
  AND look_at <= @now
ORDER BY look_at, name
LIMIT @most;

-- name: FindState :one
-- Index: the key of runs.
SELECT state
FROM runs
WHERE id = @id;

-- name: AdvanceSchedule :exec
UPDATE schedules
SET next_at = @next_at,
    look_at = @look_at,
    waiting = @waiting,
    unfinished = @unfinished,
    fault = NULL
WHERE name = @name;

-- name: InsertSkip :exec
INSERT INTO skips (schedule, first_at, last_at, reason)
VALUES (@schedule, @first_at, @last_at, @reason);

-- name: PostponeSchedule :exec
-- Its rule could not be evaluated; what was planned stays.
UPDATE schedules
SET look_at = @look_at,
    fault = @fault
WHERE name = @name;

-- name: HastenSchedule :exec
-- Index: the key of schedules.
UPDATE schedules
SET look_at = @now
WHERE name = @name
  AND waiting > 0
  AND look_at > @now
  AND paused = 0
  AND fault IS NULL;

-- name: NextEvaluations :many
-- Index: schedules_look. The first so many, of which some may be set aside.
SELECT name, look_at
FROM schedules
WHERE look_at IS NOT NULL
ORDER BY look_at, name
LIMIT @most;

-- name: NextEvaluation :one
-- Index: schedules_look. An instant of -1: nothing will be due.
SELECT CAST(coalesce(min(look_at), -1) AS INTEGER) AS look_at
FROM schedules
WHERE look_at IS NOT NULL;

-- name: UnfinishedOfSchedule :many
-- Index: runs_occurrence: all runs of one schedule. Asked only where the schedule has
-- left out some of them.
SELECT id
FROM runs
WHERE schedule = @schedule
  AND state < 2
LIMIT @most;
