-- name: DeclareJobs :exec
-- jobs_pkey. Locks the rows in the order given (by name). Twice: the same rows.
INSERT INTO durable.jobs (name, queue, priority, max_attempts, timeout, on_crash, retention)
SELECT u.name, u.queue, u.priority, u.max_attempts, u.timeout, u.on_crash, u.retention
FROM (SELECT unnest(@names::text[]) AS name, unnest(@queues::text[]) queue, unnest(@priorities::smallint[]) priority,
             unnest(@max_attempts::int[]) max_attempts, unnest(@timeouts::bigint[]) timeout, unnest(@on_crashes::smallint[]) on_crash,
             unnest(@retentions::bigint[]) retention) u
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, on_crash = excluded.on_crash, retention = excluded.retention, declared_at = now();

-- name: LockSchedules :many
-- schedules_name_key. Locks the rows by name, so it waits for a materializer
-- that evaluates one.
SELECT id FROM durable.schedules WHERE name = ANY (@names::text[]) ORDER BY name FOR UPDATE;

-- name: InsertSchedules :exec
-- schedules_name_key. Locks only what it inserts. A name that is there is passed
-- over before the row is made: ON CONFLICT alone would use up a number for each,
-- every worker declares all its schedules at every start and every hour, and
-- schedules.id is an int. It stays one: runs.schedule would have to follow, and
-- that rewrites runs. Twice: the names are there.
INSERT INTO durable.schedules (name, spec, hash, job, queue, priority, max_attempts, timeout, on_crash, args, tags, paused, look_at,
    declared_at, hash_at, brought_at)
SELECT u.name, u.spec::json, u.hash, u.job, u.queue, u.priority, u.max_attempts, u.timeout, u.on_crash, u.args::json, u.tags::text[], u.paused,
       CASE WHEN u.paused THEN 'infinity' ELSE clock_timestamp() END, now(), now(),
       coalesce((SELECT w.started_at FROM durable.workers w WHERE w.instance = @instance), now())
FROM (SELECT unnest(@names::text[]) AS name, unnest(@specs::text[]) spec, unnest(@hashes::text[]) hash, unnest(@jobs::text[]) job, unnest(@queues::text[]) queue,
             unnest(@priorities::smallint[]) priority, unnest(@max_attempts::int[]) max_attempts, unnest(@timeouts::bigint[]) timeout,
             unnest(@on_crashes::smallint[]) on_crash, unnest(@args::text[]) args, unnest(@tags::text[]) tags, unnest(@paused::boolean[]) paused) u
WHERE NOT EXISTS (SELECT FROM durable.schedules s WHERE s.name = u.name)
ON CONFLICT (name) DO NOTHING;

-- name: ReplaceSchedules :exec
-- schedules_name_key; rows that LockSchedules has locked. Another hash than the
-- stored one counts when its worker has started after the one that brought the
-- stored one, or when nobody has declared that within so many microseconds.
-- One with the same times, in the parts of the spec that are named by their paths,
-- keeps its plan; another is planned afresh, from this
-- instant on, and what is due then is recorded. Twice: the hash is the stored one.
WITH u AS MATERIALIZED (
    SELECT unnest(@names::text[]) AS name, unnest(@specs::text[]) spec, unnest(@hashes::text[]) hash, unnest(@jobs::text[]) job, unnest(@queues::text[]) queue,
           unnest(@priorities::smallint[]) priority, unnest(@max_attempts::int[]) max_attempts, unnest(@timeouts::bigint[]) timeout,
           unnest(@on_crashes::smallint[]) on_crash, unnest(@args::text[]) args, unnest(@tags::text[]) tags
), b AS MATERIALIZED (
    SELECT coalesce((SELECT w.started_at FROM durable.workers w WHERE w.instance = @instance), now()) AS started_at, clock_timestamp() AS at
), r AS MATERIALIZED (
    SELECT s.id, ARRAY(SELECT s.spec::jsonb #> t.path::text[] FROM unnest(@times_paths::text[]) AS t (path))
               = ARRAY(SELECT u.spec::jsonb #> t.path::text[] FROM unnest(@times_paths::text[]) AS t (path)) AS same,
           u.spec, u.hash, u.job, u.queue, u.priority, u.max_attempts, u.timeout, u.on_crash, u.args, u.tags, b.at, b.started_at
    FROM durable.schedules s JOIN u ON s.name = u.name, b
    WHERE s.hash <> u.hash AND (b.started_at >= s.brought_at OR s.hash_at < now() - (@within::bigint) * interval '1 microsecond')
), k AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason) SELECT s.id, s.next_at, r.at, 'changed'
    FROM durable.schedules s JOIN r ON s.id = r.id WHERE NOT r.same AND NOT s.paused AND s.next_at <= r.at
)
UPDATE durable.schedules s SET generation = s.generation + 1, fault = NULL, edited = false,
    next_at = CASE WHEN r.same THEN s.next_at END, waiting = CASE WHEN r.same AND s.fault IS NULL THEN s.waiting ELSE 0 END,
    look_at = CASE WHEN s.paused THEN 'infinity' WHEN r.same AND s.fault IS NULL THEN s.look_at ELSE r.at END,
    spec = r.spec::json, hash = r.hash, job = r.job, queue = r.queue,
    priority = r.priority, max_attempts = r.max_attempts, timeout = r.timeout, on_crash = r.on_crash, args = r.args::json, tags = r.tags::text[],
    hash_at = now(), brought_at = r.started_at
FROM r WHERE s.id = r.id;

-- name: TouchSchedules :exec
-- schedules_name_key; rows that LockSchedules has locked. Those that were paused
-- as orphans go on. Twice: the same.
WITH t AS (
    UPDATE durable.schedules s SET declared_at = now(), hash_at = CASE WHEN s.hash = u.hash THEN now() ELSE s.hash_at END,
        paused = s.paused AND NOT p.orphan, paused_by = CASE WHEN p.orphan THEN NULL ELSE s.paused_by END,
        look_at = CASE WHEN p.orphan THEN clock_timestamp() ELSE s.look_at END, next_at = CASE WHEN p.orphan THEN NULL ELSE s.next_at END,
        waiting = CASE WHEN p.orphan THEN 0 ELSE s.waiting END
    FROM (SELECT unnest(@names::text[]) AS name, unnest(@hashes::text[]) hash) u,
         (SELECT o.id, o.paused AND o.paused_by = @actor::text AND o.paused_by IS NOT NULL AS orphan FROM durable.schedules o) p
    WHERE s.name = u.name AND p.id = s.id
    RETURNING s.name, p.orphan
)
INSERT INTO durable.audit (actor, kind, subject, action) SELECT @actor::text, @kind::text, t.name, @resumed::text FROM t WHERE t.orphan;

-- name: DisableOrphans :exec
-- Reads the whole table, a small one; rows that others have locked are left to
-- the next time. What is due is recorded. Twice: they are paused.
WITH o AS MATERIALIZED (
    SELECT s.id, s.next_at FROM durable.schedules s WHERE NOT s.paused AND s.declared_at < now() - (@after::bigint) * interval '1 microsecond'
    ORDER BY s.name FOR UPDATE SKIP LOCKED
), k AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason) SELECT o.id, o.next_at, now(), 'changed' FROM o WHERE o.next_at <= now()
), t AS (
    UPDATE durable.schedules s SET paused = true, paused_by = @actor::text, look_at = 'infinity' FROM o WHERE s.id = o.id RETURNING s.name
)
INSERT INTO durable.audit (actor, kind, subject, action) SELECT @actor::text, @kind::text, t.name, @paused::text FROM t;

-- name: PruneSkips :exec
-- skips_schedule, all of it. Keeps the latest so many of each schedule.
DELETE FROM durable.skips k USING (
    SELECT n.id FROM (SELECT s.id, row_number() OVER (PARTITION BY s.schedule ORDER BY s.id DESC) AS place FROM durable.skips s) n WHERE n.place > (@keep::bigint)
) old WHERE k.id = old.id;

-- name: Jobs :many
-- jobs_pkey in order, a small table. No locks.
SELECT name, queue, priority, max_attempts, timeout, on_crash, retention FROM durable.jobs ORDER BY name;
