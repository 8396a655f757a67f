-- name: ListSchedules :many
-- Reads the whole table, a small one. No locks.
SELECT name, generation, next_at, waiting, spec::text AS spec, hash, job, queue, timeout, max_attempts, priority, on_crash, args::text AS args, tags,
       paused, coalesce(paused_by, '')::text AS paused_by, edited, declared_at,
       coalesce(declared_at < now() - (@within::bigint) * interval '1 microsecond', false)::boolean AS orphaned, coalesce(fault, '')::text AS fault
FROM durable.schedules WHERE cardinality(@names::text[]) = 0 OR name = ANY (@names::text[]) ORDER BY name;

-- name: LockSchedule :one
-- schedules_name_key. Locks the row until the operator's change has been made.
SELECT id, generation, hash, paused, unfinished, spec::text AS spec, job, queue, timeout, max_attempts, priority, on_crash, args::text AS args, tags
FROM durable.schedules WHERE name = @name FOR UPDATE;

-- name: CreateSchedule :execrows
-- schedules_name_key. Twice: the name is taken.
INSERT INTO durable.schedules (name, spec, hash, job, queue, priority, max_attempts, timeout, on_crash, args, tags, paused, edited, look_at, hash_at, brought_at)
VALUES (@name, (@spec::text)::json, '', @job, @queue, @priority, @max_attempts, @timeout, @on_crash, (@args::text)::json, @tags, @paused::boolean, true,
        CASE WHEN @paused::boolean THEN 'infinity' ELSE clock_timestamp() END, '-infinity', '-infinity')
ON CONFLICT (name) DO NOTHING;

-- name: EditSchedule :exec
-- schedules_pkey; a row that LockSchedule has locked. It is planned afresh, from
-- this instant on, unless its plan is to be kept; what is due then is recorded.
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS at), k AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason) SELECT s.id, s.next_at, t.at, 'changed'
    FROM durable.schedules s, t WHERE s.id = @id AND NOT @keep::boolean AND NOT s.paused AND s.next_at <= t.at
)
UPDATE durable.schedules s SET generation = s.generation + 1, fault = NULL, edited = true,
    next_at = CASE WHEN @keep::boolean THEN s.next_at END, waiting = CASE WHEN @keep::boolean AND s.fault IS NULL THEN s.waiting ELSE 0 END,
    look_at = CASE WHEN s.paused THEN 'infinity' WHEN @keep::boolean AND s.fault IS NULL THEN s.look_at ELSE t.at END,
    spec = (@spec::text)::json, job = @job, queue = @queue,
    priority = @priority, max_attempts = @max_attempts, timeout = @timeout, on_crash = @on_crash, args = (@args::text)::json, tags = @tags
FROM t WHERE s.id = @id;

-- name: PauseSchedule :exec
-- schedules_pkey; a row that LockSchedule has locked. What is due is recorded.
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS at), k AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason) SELECT s.id, s.next_at, t.at, 'changed'
    FROM durable.schedules s, t WHERE s.id = @id AND NOT s.paused AND s.next_at <= t.at
)
UPDATE durable.schedules SET paused = true, paused_by = @paused_by::text, look_at = 'infinity' WHERE durable.schedules.id = @id;

-- name: ResumeSchedule :exec
-- schedules_pkey; a row that LockSchedule has locked. It is planned from now on.
UPDATE durable.schedules SET paused = false, paused_by = NULL, look_at = clock_timestamp(), next_at = NULL, waiting = 0, fault = NULL WHERE id = @id;

-- name: DeleteSchedule :exec
-- schedules_pkey; a row that LockSchedule has locked. Runs keep its number.
DELETE FROM durable.schedules WHERE id = @id;

-- name: DeleteSkips :exec
-- skips_schedule.
DELETE FROM durable.skips WHERE schedule = @schedule;

-- name: SetUnfinished :exec
-- schedules_pkey; a row that LockSchedule has locked.
UPDATE durable.schedules SET unfinished = (@unfinished::text)::uuid[] WHERE id = @id;

-- name: ScheduleOfRun :one
-- runs_pkey. No locks: whoever makes a run of a schedule has its row locked. 0: of
-- none.
SELECT coalesce(schedule, 0)::int AS schedule FROM durable.runs WHERE id = @id;

-- name: Audit :exec
-- In the transaction of the change.
INSERT INTO durable.audit (actor, kind, subject, action) VALUES (@actor, @kind, @subject, @action);

-- name: FindSchedule :one
-- schedules_name_key. No locks.
SELECT id FROM durable.schedules WHERE name = @name;

-- name: PastOccurrences :many
-- runs_occurrence backwards. No locks.
SELECT r.id, r.state, r.due_at, coalesce(r.occurrence, '')::text AS occurrence FROM durable.runs r
WHERE r.schedule = @schedule::int AND r.occurrence IS NOT NULL ORDER BY r.generation DESC, r.occurrence DESC LIMIT @most::int;

-- name: PastRequests :many
-- runs_occurrence: the runs that operators asked for have none. No locks.
SELECT r.id, r.state, r.due_at, ''::text AS occurrence FROM durable.runs r
WHERE r.schedule = @schedule::int AND r.occurrence IS NULL ORDER BY r.due_at DESC LIMIT @most::int;

-- name: PastSkips :many
-- skips_schedule backwards. No locks.
SELECT first_at, last_at, reason FROM durable.skips WHERE schedule = @schedule ORDER BY id DESC LIMIT @most::int;

-- name: PastChanges :many
-- audit_subject backwards. No locks.
SELECT at, actor, action FROM durable.audit WHERE kind = @kind AND subject = @subject ORDER BY id DESC LIMIT @most::int;
