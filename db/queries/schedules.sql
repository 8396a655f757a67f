-- name: TryEvaluate :one
-- One materializer at a time and nobody waits; ends with the transaction.
SELECT pg_try_advisory_xact_lock(@key::bigint)::boolean AS mine, now()::timestamptz AS now;

-- name: DueSchedules :many
-- schedules_look, in its order (the column's, not the result's of that name).
-- Locks the rows it returns with SKIP LOCKED: one that is being declared anew is
-- left to the next call. Begins after a row, or at the head. Those set aside are left.
SELECT s.id, s.name, s.generation, s.next_at, greatest(s.look_at, 'epoch')::timestamptz AS look_at, s.waiting, s.unfinished,
       s.spec::text AS spec, s.hash, s.job, s.queue, s.timeout, s.max_attempts, s.priority, s.on_crash, s.args::text AS args, s.tags
FROM durable.schedules s WHERE s.look_at <= now() AND s.name <> ALL (@aside::text[])
  AND (s.look_at, s.name) > (coalesce(sqlc.narg(after_at)::timestamptz, '-infinity'), @after_name::text)
ORDER BY s.look_at, s.name LIMIT @most FOR UPDATE SKIP LOCKED;

-- name: UnfinishedRuns :many
-- runs_pkey. No locks: whoever ends a run meanwhile does not matter, and whoever
-- makes one of a schedule has its row locked first.
SELECT id FROM durable.runs WHERE id = ANY (@ids::uuid[]) AND state < 2;

-- name: MaterializeRuns :many
-- EnqueueRuns for occurrences; also runs_occurrence. Twice: an occurrence that
-- is stored is passed over.
WITH k AS MATERIALIZED (
    SELECT l.id
    FROM (SELECT unnest(@known::int[]) id, unnest(@queues::text[]) queue, unnest(@jobs::text[]) job, unnest(@priorities::smallint[]) priority) w
    JOIN durable.lanes l ON l.id = w.id AND l.queue = w.queue AND l.job = w.job AND l.priority = w.priority
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, schedule, generation, occurrence)
    SELECT u.id, CASE WHEN u.lane = ANY (ARRAY(SELECT k.id FROM k)) THEN u.lane END,
           coalesce(u.at, now() + u.after * interval '1 microsecond'), u.expires_at, nullif(u.timeout, 0),
           u.max_attempts, u.on_crash, u.args::json, u.tags::text[], u.schedule, u.generation, u.occurrence
    FROM (SELECT unnest(@ids::uuid[]) id, unnest(@lanes::int[]) lane, unnest(@ats::timestamptz[]) at, unnest(@afters::bigint[]) after,
                 unnest(@expiries::timestamptz[]) expires_at, unnest(@timeouts::bigint[]) timeout,
                 unnest(@max_attempts::int[]) max_attempts, unnest(@on_crashes::smallint[]) on_crash,
                 unnest(@args::text[]) args, unnest(@tags::text[]) tags,
                 unnest(@schedules::int[]) schedule, unnest(@generations::bigint[]) generation, unnest(@occurrences::text[]) occurrence) u
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT i.id FROM i;

-- name: MaterializeNew :many
-- MaterializeRuns without ON CONFLICT, which costs the server a quarter of it. An
-- occurrence that is stored fails the whole statement (23505), and
-- MaterializeRuns takes its place.
WITH k AS MATERIALIZED (
    SELECT l.id
    FROM (SELECT unnest(@known::int[]) id, unnest(@queues::text[]) queue, unnest(@jobs::text[]) job, unnest(@priorities::smallint[]) priority) w
    JOIN durable.lanes l ON l.id = w.id AND l.queue = w.queue AND l.job = w.job AND l.priority = w.priority
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, schedule, generation, occurrence)
    SELECT u.id, CASE WHEN u.lane = ANY (ARRAY(SELECT k.id FROM k)) THEN u.lane END,
           coalesce(u.at, now() + u.after * interval '1 microsecond'), u.expires_at, nullif(u.timeout, 0),
           u.max_attempts, u.on_crash, u.args::json, u.tags::text[], u.schedule, u.generation, u.occurrence
    FROM (SELECT unnest(@ids::uuid[]) id, unnest(@lanes::int[]) lane, unnest(@ats::timestamptz[]) at, unnest(@afters::bigint[]) after,
                 unnest(@expiries::timestamptz[]) expires_at, unnest(@timeouts::bigint[]) timeout,
                 unnest(@max_attempts::int[]) max_attempts, unnest(@on_crashes::smallint[]) on_crash,
                 unnest(@args::text[]) args, unnest(@tags::text[]) tags,
                 unnest(@schedules::int[]) schedule, unnest(@generations::bigint[]) generation, unnest(@occurrences::text[]) occurrence) u
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT i.id FROM i;

-- name: AdvanceSchedules :exec
-- schedules_pkey; rows that DueSchedules has locked. A fault keeps next_at, also
-- as one that waits, and rests the schedule for a minute.
UPDATE durable.schedules s SET
    next_at = CASE WHEN u.fault <> '' THEN s.next_at ELSE u.next_at END,
    look_at = CASE WHEN u.fault <> '' THEN now() + (@fault_pause::bigint) * interval '1 microsecond' WHEN u.waiting > 0 THEN now() + u.waiting * interval '1 microsecond'
              ELSE coalesce(u.next_at, 'infinity') END,
    waiting = CASE WHEN u.fault <> '' THEN s.waiting ELSE u.waiting END, unfinished = u.unfinished::uuid[], fault = nullif(u.fault, '')
FROM (SELECT unnest(@ids::int[]) id, unnest(@nexts::timestamptz[]) next_at, unnest(@waitings::bigint[]) waiting,
             unnest(@unfinished::text[]) unfinished, unnest(@faults::text[]) fault) u
WHERE s.id = u.id;

-- name: AdvanceAlike :exec
-- AdvanceSchedules for schedules with one run, just made, that go on: the common
-- case.
UPDATE durable.schedules s SET next_at = u.next_at, look_at = coalesce(u.next_at, 'infinity'), waiting = 0, unfinished = ARRAY[u.run], fault = NULL
FROM (SELECT unnest(@ids::int[]) id, unnest(@nexts::timestamptz[]) next_at, unnest(@runs::uuid[]) run) u
WHERE s.id = u.id;

-- name: HastenSchedules :exec
-- schedules_name_key. Locks the rows in the order of their names, and waits for
-- who evaluates them: that one may not have seen yet what has ended. Twice: the
-- same.
WITH s AS MATERIALIZED (
    SELECT id FROM durable.schedules WHERE name = ANY (@names::text[]) AND waiting > 0 AND look_at > now() AND NOT paused ORDER BY name FOR UPDATE
)
UPDATE durable.schedules SET look_at = now() FROM s WHERE durable.schedules.id = s.id;

-- name: InsertSkips :exec
-- In the transaction that passes the occurrences by.
INSERT INTO durable.skips (schedule, first_at, last_at, reason)
SELECT unnest(@schedules::int[]), unnest(@firsts::timestamptz[]), unnest(@lasts::timestamptz[]), unnest(@reasons::text[]);

-- name: NextLook :one
-- The head of schedules_look. No locks: the first question of every look, and
-- mostly the only one. Those set aside are passed over. Zero: due; negative: none.
SELECT coalesce((SELECT extract(epoch FROM greatest(s.look_at, now()) - now()) * 1000000 FROM durable.schedules s
                 WHERE s.look_at < 'infinity' AND s.name <> ALL (@aside::text[]) ORDER BY s.look_at LIMIT 1), -1)::bigint AS microseconds;

-- name: FirstDue :one
-- The head of schedules_look, by nothing but its index: the row may be one that
-- cannot be read. No locks.
SELECT s.name FROM durable.schedules s WHERE s.look_at <= now() AND s.name <> ALL (@aside::text[]) ORDER BY s.look_at, s.name LIMIT 1;

-- name: BeginPart :exec
-- What follows can be taken back alone.
SAVEPOINT part;

-- name: EndPart :exec
RELEASE SAVEPOINT part;

-- name: UndoPart :exec
ROLLBACK TO SAVEPOINT part;

-- name: UnfinishedOfSchedule :many
-- runs_occurrence: all runs of one schedule. Asked only where the schedule has
-- left out some of them. No locks, as UnfinishedRuns.
SELECT id FROM durable.runs WHERE schedule = @schedule::int AND state < 2 LIMIT @most::int;
