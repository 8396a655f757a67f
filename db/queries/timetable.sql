-- name: ListSchedules :many
-- Index: none; reads the whole table, a small one. Locks: none.
SELECT
    name, generation, next_at, waiting,
    spec::text AS spec,
    hash, job, queue, timeout, max_attempts, priority, on_crash,
    args::text AS args,
    tags, limits, paused,
    coalesce(paused_by, '')::text AS paused_by,
    edited, declared_at,
    coalesce(
        declared_at < now() - (@within::bigint) * interval '1 microsecond',
        false
    )::boolean AS orphaned,
    coalesce(fault, '')::text AS fault
FROM durable.schedules
WHERE cardinality(@names::text[]) = 0
   OR name = ANY (@names::text[])
ORDER BY name;

-- name: LockSchedule :one
-- Index: schedules_name_key. Locks: the row, until the operator's change has committed.
SELECT
    id, generation, hash, paused, unfinished,
    spec::text AS spec,
    job, queue, timeout, max_attempts, priority, on_crash,
    args::text AS args,
    tags, limits
FROM durable.schedules
WHERE name = @name
FOR UPDATE;

-- name: HoldSchedule :one
-- For a program that puts its schedule, or changes it, perhaps in a transaction of its own.
-- Index: schedules_name_key. Locks: the row, until the transaction ends.
SELECT
    id, hash, paused,
    spec::text AS spec
FROM durable.schedules
WHERE name = @name
FOR UPDATE;

-- name: CreateSchedule :execrows
-- Index: schedules_name_key. Idempotent: a repeat finds the name taken, and returns no row.
INSERT INTO durable.schedules (
    name, spec, hash, job, queue, priority, max_attempts, timeout, on_crash, args, tags, limits,
    paused, edited, look_at, hash_at, brought_at
)
VALUES (
    @name,
    (@spec::text)::json,
    '',
    @job,
    @queue,
    @priority,
    @max_attempts,
    @timeout,
    @on_crash,
    (@args::text)::json,
    @tags,
    @limits,
    @paused::boolean,
    @edited::boolean,
    CASE WHEN @paused::boolean THEN 'infinity' ELSE clock_timestamp() END,
    '-infinity',
    '-infinity'
)
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- name: EditSchedule :exec
-- Changes a schedule. It is planned again from this instant on, unless its next occurrence
-- is to be kept; what is due then is recorded in skips.
-- Index: schedules_pkey. Locks: a row that LockSchedule has locked.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), skipped AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason)
    SELECT schedules.id, schedules.next_at, clock.at, 'changed'
    FROM durable.schedules, clock
    WHERE schedules.id = @id
      AND NOT @keep::boolean
      AND NOT schedules.paused
      AND schedules.next_at <= clock.at
)
UPDATE durable.schedules
SET generation = schedules.generation + 1,
    fault = NULL,
    edited = @edited::boolean,
    next_at = CASE WHEN @keep::boolean THEN schedules.next_at END,
    waiting = CASE
        WHEN @keep::boolean AND schedules.fault IS NULL THEN schedules.waiting
        ELSE 0
    END,
    look_at = CASE
        WHEN schedules.paused THEN 'infinity'
        WHEN @keep::boolean AND schedules.fault IS NULL THEN schedules.look_at
        ELSE clock.at
    END,
    spec = (@spec::text)::json,
    job = @job,
    queue = @queue,
    priority = @priority,
    max_attempts = @max_attempts,
    timeout = @timeout,
    on_crash = @on_crash,
    args = (@args::text)::json,
    tags = @tags,
    limits = @limits
FROM clock
WHERE schedules.id = @id;

-- name: PauseSchedule :exec
-- Pauses a schedule; what is due is recorded in skips.
-- Index: schedules_pkey. Locks: a row that LockSchedule has locked.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), skipped AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason)
    SELECT schedules.id, schedules.next_at, clock.at, 'changed'
    FROM durable.schedules, clock
    WHERE schedules.id = @id
      AND NOT schedules.paused
      AND schedules.next_at <= clock.at
)
UPDATE durable.schedules
SET paused = true,
    paused_by = @paused_by::text,
    look_at = 'infinity'
WHERE durable.schedules.id = @id;

-- name: ResumeSchedule :exec
-- Resumes a schedule; it is planned from now on.
-- Index: schedules_pkey. Locks: a row that LockSchedule has locked.
UPDATE durable.schedules
SET paused = false,
    paused_by = NULL,
    look_at = clock_timestamp(),
    next_at = NULL,
    waiting = 0,
    fault = NULL
WHERE id = @id;

-- name: DeleteSchedule :exec
-- Runs keep its number. Index: schedules_pkey. Locks: a row that LockSchedule has locked.
DELETE FROM durable.schedules
WHERE id = @id;

-- name: DeleteSkips :exec
-- Index: skips_schedule.
DELETE FROM durable.skips
WHERE schedule = @schedule;

-- name: SetUnfinished :exec
-- Index: schedules_pkey. Locks: a row that LockSchedule has locked.
UPDATE durable.schedules
SET unfinished = (@unfinished::text)::uuid[]
WHERE id = @id;

-- name: ScheduleOfRun :one
-- The number of the run's schedule; 0: none. Index: runs_pkey. Locks: none; a transaction
-- that inserts a run of a schedule has locked the schedule's row.
SELECT coalesce(schedule, 0)::int AS schedule
FROM durable.runs
WHERE id = @id;

-- name: Audit :exec
-- In the transaction of the change.
INSERT INTO durable.audit (actor, kind, subject, action)
VALUES (@actor, @kind, @subject, @action);

-- name: FindSchedule :one
-- Index: schedules_name_key. Locks: none.
SELECT id
FROM durable.schedules
WHERE name = @name;

-- name: PastOccurrences :many
-- Index: runs_occurrence backwards. Locks: none.
SELECT
    runs.id,
    runs.state,
    runs.due_at,
    coalesce(runs.occurrence, '')::text AS occurrence
FROM durable.runs
WHERE runs.schedule = @schedule::int
  AND runs.occurrence IS NOT NULL
ORDER BY runs.generation DESC, runs.occurrence DESC
LIMIT @most::int;

-- name: PastRequests :many
-- The runs that operators asked for have no occurrence.
-- Index: runs_occurrence. Locks: none.
SELECT runs.id, runs.state, runs.due_at, ''::text AS occurrence
FROM durable.runs
WHERE runs.schedule = @schedule::int
  AND runs.occurrence IS NULL
ORDER BY runs.due_at DESC
LIMIT @most::int;

-- name: PastSkips :many
-- Index: skips_schedule backwards. Locks: none.
SELECT first_at, last_at, reason
FROM durable.skips
WHERE schedule = @schedule
ORDER BY id DESC
LIMIT @most::int;

-- name: PastChanges :many
-- Index: audit_subject backwards. Locks: none.
SELECT at, actor, action
FROM durable.audit
WHERE kind = @kind
  AND subject = @subject
ORDER BY id DESC
LIMIT @most::int;
