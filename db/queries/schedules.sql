-- name: TryEvaluate :one
-- One materializer at a time, and none waits; the lock ends with the transaction.
SELECT
    pg_try_advisory_xact_lock(@key::bigint)::boolean AS mine,
    now()::timestamptz AS now;

-- name: DueSchedules :many
-- The schedules to be evaluated, after a row or from the head. Those set aside are left.
-- Index: schedules_look, in its order (the column's, not the result's of that name).
-- Locks: the rows with SKIP LOCKED; one that is being declared again is left to the next
-- call.
SELECT
    schedules.id,
    schedules.name,
    schedules.generation,
    schedules.next_at,
    greatest(schedules.look_at, 'epoch')::timestamptz AS look_at,
    schedules.waiting,
    schedules.unfinished,
    schedules.spec::text AS spec,
    schedules.hash,
    schedules.job,
    schedules.queue,
    schedules.timeout,
    schedules.max_attempts,
    schedules.priority,
    schedules.on_crash,
    schedules.args::text AS args,
    schedules.tags,
    schedules.limits
FROM durable.schedules
WHERE schedules.look_at <= now()
  AND schedules.name <> ALL (@aside::text[])
  AND (schedules.look_at, schedules.name)
    > (coalesce(sqlc.narg(after_at)::timestamptz, '-infinity'), @after_name::text)
ORDER BY schedules.look_at, schedules.name
LIMIT @most
FOR UPDATE SKIP LOCKED;

-- name: UnfinishedRuns :many
-- Index: runs_pkey. Locks: none; a run that ends meanwhile does not matter, and a
-- transaction that inserts one of a schedule has locked the schedule's row first.
SELECT id
FROM durable.runs
WHERE id = ANY (@ids::uuid[])
  AND durable.is_unfinished(state);

-- name: MaterializeRuns :many
-- EnqueueRuns for occurrences; also runs_occurrence.
-- Idempotent: an occurrence that is stored is skipped.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM (
        SELECT
            unnest(@known::int[]) AS id,
            unnest(@queues::text[]) AS queue,
            unnest(@jobs::text[]) AS job,
            unnest(@priorities::smallint[]) AS priority
    ) learnt
    JOIN durable.lanes ON lanes.id = learnt.id
        AND lanes.queue = learnt.queue
        AND lanes.job = learnt.job
        AND lanes.priority = learnt.priority
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags,
        metadata, schedule, generation, occurrence, occurs_at, schedule_name
    )
    SELECT
        given.id,
        CASE WHEN given.lane = ANY (ARRAY(SELECT known.id FROM known)) THEN given.lane END,
        coalesce(given.at, now() + given.after * interval '1 microsecond'),
        given.expires_at,
        nullif(given.timeout, 0),
        given.max_attempts,
        given.on_crash,
        given.args::json,
        given.tags::text[],
        given.metadata::json,
        given.schedule,
        given.generation,
        given.occurrence,
        given.occurs_at,
        given.schedule_name
    FROM (
        SELECT
            unnest(@ids::uuid[]) AS id,
            unnest(@lanes::int[]) AS lane,
            unnest(@ats::timestamptz[]) AS at,
            unnest(@afters::bigint[]) AS after,
            unnest(@expiries::timestamptz[]) AS expires_at,
            unnest(@timeouts::bigint[]) AS timeout,
            unnest(@max_attempts::int[]) AS max_attempts,
            unnest(@on_crashes::smallint[]) AS on_crash,
            unnest(@args::text[]) AS args,
            unnest(@tags::text[]) AS tags,
            unnest(@metadata::text[]) AS metadata,
            unnest(@schedules::int[]) AS schedule,
            unnest(@generations::bigint[]) AS generation,
            unnest(@occurrences::text[]) AS occurrence,
            unnest(@occurs_ats::text[]) AS occurs_at,
            unnest(@schedule_names::text[]) AS schedule_name
    ) given
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of stored
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT stored.lane, stored.due_at, stored.id
    FROM stored
-- end
)
SELECT stored.id
FROM stored;

-- name: MaterializeNew :many
-- MaterializeRuns without ON CONFLICT, which costs the server a quarter of it.
-- Idempotent: an occurrence that is stored fails the whole statement (23505), and
-- MaterializeRuns takes its place.
WITH known AS MATERIALIZED (
    SELECT lanes.id
    FROM (
        SELECT
            unnest(@known::int[]) AS id,
            unnest(@queues::text[]) AS queue,
            unnest(@jobs::text[]) AS job,
            unnest(@priorities::smallint[]) AS priority
    ) learnt
    JOIN durable.lanes ON lanes.id = learnt.id
        AND lanes.queue = learnt.queue
        AND lanes.job = learnt.job
        AND lanes.priority = learnt.priority
), stored AS (
    INSERT INTO durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags,
        metadata, schedule, generation, occurrence, occurs_at, schedule_name
    )
    SELECT
        given.id,
        CASE WHEN given.lane = ANY (ARRAY(SELECT known.id FROM known)) THEN given.lane END,
        coalesce(given.at, now() + given.after * interval '1 microsecond'),
        given.expires_at,
        nullif(given.timeout, 0),
        given.max_attempts,
        given.on_crash,
        given.args::json,
        given.tags::text[],
        given.metadata::json,
        given.schedule,
        given.generation,
        given.occurrence,
        given.occurs_at,
        given.schedule_name
    FROM (
        SELECT
            unnest(@ids::uuid[]) AS id,
            unnest(@lanes::int[]) AS lane,
            unnest(@ats::timestamptz[]) AS at,
            unnest(@afters::bigint[]) AS after,
            unnest(@expiries::timestamptz[]) AS expires_at,
            unnest(@timeouts::bigint[]) AS timeout,
            unnest(@max_attempts::int[]) AS max_attempts,
            unnest(@on_crashes::smallint[]) AS on_crash,
            unnest(@args::text[]) AS args,
            unnest(@tags::text[]) AS tags,
            unnest(@metadata::text[]) AS metadata,
            unnest(@schedules::int[]) AS schedule,
            unnest(@generations::bigint[]) AS generation,
            unnest(@occurrences::text[]) AS occurrence,
            unnest(@occurs_ats::text[]) AS occurs_at,
            unnest(@schedule_names::text[]) AS schedule_name
    ) given
    RETURNING id, lane, due_at
), queued AS (
-- block: enter-line of stored
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT stored.lane, stored.due_at, stored.id
    FROM stored
-- end
)
SELECT stored.id
FROM stored;

-- name: AdvanceSchedules :exec
-- A fault keeps next_at, also as one that waits, and postpones the schedule by a minute.
-- Index: schedules_pkey. Locks: rows that DueSchedules has locked.
UPDATE durable.schedules
SET next_at = CASE
        WHEN advanced.fault <> '' THEN schedules.next_at
        ELSE advanced.next_at
    END,
    look_at = CASE
        WHEN advanced.fault <> '' THEN now() + (@fault_pause::bigint) * interval '1 microsecond'
        WHEN advanced.waiting > 0 THEN now() + advanced.waiting * interval '1 microsecond'
        ELSE coalesce(advanced.next_at, 'infinity')
    END,
    waiting = CASE
        WHEN advanced.fault <> '' THEN schedules.waiting
        ELSE advanced.waiting
    END,
    unfinished = advanced.unfinished::uuid[],
    fault = nullif(advanced.fault, '')
FROM (
    SELECT
        unnest(@ids::int[]) AS id,
        unnest(@nexts::timestamptz[]) AS next_at,
        unnest(@waitings::bigint[]) AS waiting,
        unnest(@unfinished::text[]) AS unfinished,
        unnest(@faults::text[]) AS fault
) advanced
WHERE schedules.id = advanced.id;

-- name: AdvanceAlike :exec
-- AdvanceSchedules for schedules with one run, just stored, that go on: the common case.
UPDATE durable.schedules
SET next_at = advanced.next_at,
    look_at = coalesce(advanced.next_at, 'infinity'),
    waiting = 0,
    unfinished = ARRAY[advanced.run],
    fault = NULL
FROM (
    SELECT
        unnest(@ids::int[]) AS id,
        unnest(@nexts::timestamptz[]) AS next_at,
        unnest(@runs::uuid[]) AS run
) advanced
WHERE schedules.id = advanced.id;

-- name: HastenSchedules :exec
-- Has schedules that wait for a run evaluated immediately. One with a fault rests as long
-- as it always does.
-- Index: schedules_name_key. Locks: the rows in the order of their names; waits for a
-- materializer that evaluates them, which may not have seen yet what has ended.
-- Idempotent: a repeat finds them due.
WITH waiting AS MATERIALIZED (
    SELECT id
    FROM durable.schedules
    WHERE name = ANY (@names::text[])
      AND waiting > 0
      AND look_at > now()
      AND NOT paused
      AND fault IS NULL
    ORDER BY name
    FOR UPDATE
)
UPDATE durable.schedules
SET look_at = now()
FROM waiting
WHERE durable.schedules.id = waiting.id;

-- name: InsertSkips :exec
-- In the transaction that passes the occurrences by.
INSERT INTO durable.skips (schedule, first_at, last_at, reason)
SELECT
    unnest(@schedules::int[]),
    unnest(@firsts::timestamptz[]),
    unnest(@lasts::timestamptz[]),
    unnest(@reasons::text[]);

-- name: NextEvaluation :one
-- The first question of every materializer, and mostly the only one: microseconds until a
-- schedule is due; 0: one is; negative: none will be. Those set aside are skipped.
-- Index: the head of schedules_look. Locks: none.
SELECT coalesce(
    (
        SELECT extract(epoch FROM greatest(schedules.look_at, now()) - now()) * 1000000
        FROM durable.schedules
        WHERE schedules.look_at < 'infinity'
          AND schedules.name <> ALL (@aside::text[])
        ORDER BY schedules.look_at
        LIMIT 1
    ),
    -1
)::bigint AS microseconds;

-- name: FirstDue :one
-- Index: the head of schedules_look, and nothing but the index: the row may be one that
-- cannot be read. Locks: none.
SELECT schedules.name
FROM durable.schedules
WHERE schedules.look_at <= now()
  AND schedules.name <> ALL (@aside::text[])
ORDER BY schedules.look_at, schedules.name
LIMIT 1;

-- name: BeginPart :exec
-- What follows can be rolled back alone.
SAVEPOINT part;

-- name: EndPart :exec
RELEASE SAVEPOINT part;

-- name: UndoPart :exec
ROLLBACK TO SAVEPOINT part;

-- name: UnfinishedOfSchedule :many
-- All runs of one schedule. Asked only where the schedule has left out some of them.
-- Index: runs_occurrence. Locks: none, as UnfinishedRuns.
SELECT id
FROM durable.runs
WHERE schedule = @schedule::int
  AND durable.is_unfinished(state)
LIMIT @most::int;
