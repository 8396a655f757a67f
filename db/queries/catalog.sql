-- name: DeclareJobs :exec
-- Index: jobs_pkey. Locks: the rows, in the order given (by name). What the code of a
-- job says counts beside what other programs have declared of it within so many
-- microseconds, as in rules.JobCodeWith.
-- Idempotent: a repeat writes the same rows.
INSERT INTO durable.jobs (
    name, queue, priority, max_attempts, timeout, on_crash, retention, limits, code
)
SELECT
    declared.name,
    declared.queue,
    declared.priority,
    declared.max_attempts,
    declared.timeout,
    declared.on_crash,
    declared.retention,
    declared.limits::json,
    CASE
        WHEN declared.code IS NOT NULL THEN json_build_array(json_build_object(
            'at', (extract(epoch FROM now()) * 1000000)::bigint,
            'code', declared.code::json
        ))
    END
FROM (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@queues::text[]) AS queue,
        unnest(@priorities::smallint[]) AS priority,
        unnest(@max_attempts::int[]) AS max_attempts,
        unnest(@timeouts::bigint[]) AS timeout,
        unnest(@on_crashes::smallint[]) AS on_crash,
        unnest(@retentions::bigint[]) AS retention,
        unnest(@limits::text[]) AS limits,
        unnest(@codes::text[]) AS code
) declared
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    timeout = excluded.timeout,
    on_crash = excluded.on_crash,
    retention = excluded.retention,
    limits = excluded.limits,
    code = (
        SELECT json_agg(counts.said ORDER BY (counts.said ->> 'at')::bigint DESC)
        FROM (
            SELECT declared.said
            FROM json_array_elements(excluded.code) declared (said)
            UNION ALL
            SELECT known.said
            FROM json_array_elements(
                CASE WHEN json_typeof(jobs.code) = 'array' THEN jobs.code END
            ) known (said)
            WHERE (known.said ->> 'at')::bigint + @within::bigint
                    >= (extract(epoch FROM now()) * 1000000)::bigint
                AND known.said ->> 'code' IS DISTINCT FROM excluded.code -> 0 ->> 'code'
        ) counts
    ),
    declared_at = now();

-- name: LockSchedules :many
-- Index: schedules_name_key. Locks: the rows by name, so it waits for a materializer
-- that evaluates one of them.
SELECT id
FROM durable.schedules
WHERE name = ANY (@names::text[])
ORDER BY name
FOR UPDATE;

-- name: InsertSchedules :exec
-- Index: schedules_name_key. Locks: only what it inserts. A name that exists is passed
-- over before the row is formed: ON CONFLICT alone would use up a number for each,
-- every worker declares all its schedules at every start and every hour, and
-- schedules.id is an int. It stays an int: runs.schedule would have to follow, and
-- that rewrites runs.
-- Idempotent: a repeat finds the names and inserts nothing.
INSERT INTO durable.schedules (
    name, spec, hash, job, queue, priority, max_attempts, timeout, on_crash, args, tags, limits,
    paused, look_at, declared_at, hash_at, brought_at
)
SELECT
    declared.name,
    declared.spec::json,
    declared.hash,
    declared.job,
    declared.queue,
    declared.priority,
    declared.max_attempts,
    declared.timeout,
    declared.on_crash,
    declared.args::json,
    declared.tags::text[],
    declared.limits::text[],
    declared.paused,
    CASE WHEN declared.paused THEN 'infinity' ELSE clock_timestamp() END,
    now(),
    now(),
    coalesce(
        (
            SELECT workers.started_at
            FROM durable.workers
            WHERE workers.instance = @instance
        ),
        now()
    )
FROM (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@specs::text[]) AS spec,
        unnest(@hashes::text[]) AS hash,
        unnest(@jobs::text[]) AS job,
        unnest(@queues::text[]) AS queue,
        unnest(@priorities::smallint[]) AS priority,
        unnest(@max_attempts::int[]) AS max_attempts,
        unnest(@timeouts::bigint[]) AS timeout,
        unnest(@on_crashes::smallint[]) AS on_crash,
        unnest(@args::text[]) AS args,
        unnest(@tags::text[]) AS tags,
        unnest(@limits::text[]) AS limits,
        unnest(@paused::boolean[]) AS paused
) declared
WHERE NOT EXISTS (
    SELECT
    FROM durable.schedules
    WHERE schedules.name = declared.name
)
ON CONFLICT (name) DO NOTHING;

-- name: ReplaceSchedules :exec
-- Index: schedules_name_key. Locks: rows that LockSchedules has locked. A hash other
-- than the stored one takes effect when its worker started after the one that brought
-- the stored one, or when no worker has declared the stored one within so many
-- microseconds. A schedule whose times are the same keeps its next occurrence; another
-- is planned again from this instant on, and what is due then is recorded in skips.
-- Idempotent: a repeat finds the stored hash equal and changes nothing.
WITH declared AS MATERIALIZED (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@specs::text[]) AS spec,
        unnest(@hashes::text[]) AS hash,
        unnest(@jobs::text[]) AS job,
        unnest(@queues::text[]) AS queue,
        unnest(@priorities::smallint[]) AS priority,
        unnest(@max_attempts::int[]) AS max_attempts,
        unnest(@timeouts::bigint[]) AS timeout,
        unnest(@on_crashes::smallint[]) AS on_crash,
        unnest(@args::text[]) AS args,
        unnest(@tags::text[]) AS tags,
        unnest(@limits::text[]) AS limits
), declarer AS MATERIALIZED (
    SELECT
        coalesce(
            (
                SELECT workers.started_at
                FROM durable.workers
                WHERE workers.instance = @instance
            ),
            now()
        ) AS started_at,
        clock_timestamp() AS at
), replaced AS MATERIALIZED (
    SELECT
        schedules.id,
        ARRAY(
            SELECT schedules.spec::jsonb #> times.path::text[]
            FROM unnest(@times_paths::text[]) AS times (path)
        ) = ARRAY(
            SELECT declared.spec::jsonb #> times.path::text[]
            FROM unnest(@times_paths::text[]) AS times (path)
        ) AS same,
        declared.spec,
        declared.hash,
        declared.job,
        declared.queue,
        declared.priority,
        declared.max_attempts,
        declared.timeout,
        declared.on_crash,
        declared.args,
        declared.tags,
        declared.limits,
        declarer.at,
        declarer.started_at
    FROM durable.schedules
    JOIN declared ON schedules.name = declared.name,
    declarer
    WHERE
-- block: supersedes of schedules
      schedules.hash <> declared.hash
      AND (
          declarer.started_at >= schedules.brought_at
          OR schedules.hash_at < now() - (@within::bigint) * interval '1 microsecond'
      )
-- end
), skipped AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason)
    SELECT schedules.id, schedules.next_at, replaced.at, 'changed'
    FROM durable.schedules
    JOIN replaced ON schedules.id = replaced.id
    WHERE NOT replaced.same
      AND NOT schedules.paused
      AND schedules.next_at <= replaced.at
)
UPDATE durable.schedules
SET generation = schedules.generation + 1,
    fault = NULL,
    edited = false,
    next_at = CASE WHEN replaced.same THEN schedules.next_at END,
    waiting = CASE
        WHEN replaced.same AND schedules.fault IS NULL THEN schedules.waiting
        ELSE 0
    END,
    look_at = CASE
        WHEN schedules.paused THEN 'infinity'
        WHEN replaced.same AND schedules.fault IS NULL THEN schedules.look_at
        ELSE replaced.at
    END,
    spec = replaced.spec::json,
    hash = replaced.hash,
    job = replaced.job,
    queue = replaced.queue,
    priority = replaced.priority,
    max_attempts = replaced.max_attempts,
    timeout = replaced.timeout,
    on_crash = replaced.on_crash,
    args = replaced.args::json,
    tags = replaced.tags::text[],
    limits = replaced.limits::text[],
    hash_at = now(),
    brought_at = replaced.started_at
FROM replaced
WHERE schedules.id = replaced.id;

-- name: TouchSchedules :exec
-- Index: schedules_name_key. Locks: rows that LockSchedules has locked. Schedules that
-- were paused as orphans are resumed.
-- Idempotent: a repeat writes the same values.
WITH touched AS (
    UPDATE durable.schedules
    SET declared_at = now(),
        hash_at = CASE WHEN schedules.hash = declared.hash THEN now() ELSE schedules.hash_at END,
        paused = schedules.paused AND NOT before.orphan,
        paused_by = CASE WHEN before.orphan THEN NULL ELSE schedules.paused_by END,
        look_at = CASE WHEN before.orphan THEN clock_timestamp() ELSE schedules.look_at END,
        next_at = CASE WHEN before.orphan THEN NULL ELSE schedules.next_at END,
        waiting = CASE WHEN before.orphan THEN 0 ELSE schedules.waiting END
    FROM (
        SELECT
            unnest(@names::text[]) AS name,
            unnest(@hashes::text[]) AS hash
    ) declared,
    (
        SELECT
            any_schedule.id,
            any_schedule.paused
                AND any_schedule.paused_by = @actor::text
                AND any_schedule.paused_by IS NOT NULL AS orphan
        FROM durable.schedules any_schedule
    ) before
    WHERE schedules.name = declared.name
      AND before.id = schedules.id
    RETURNING schedules.name, before.orphan
)
INSERT INTO durable.audit (actor, kind, subject, action)
SELECT @actor::text, @kind::text, touched.name, @resumed::text
FROM touched
WHERE touched.orphan;

-- name: DisableOrphans :exec
-- Pauses schedules that no worker has declared for so many microseconds; what is due is
-- recorded in skips.
-- Index: none; reads the whole table, a small one. Locks: the rows with SKIP LOCKED; those
-- that others have locked are left to the next time.
-- Idempotent: a repeat finds them paused.
WITH orphaned AS MATERIALIZED (
    SELECT schedules.id, schedules.next_at
    FROM durable.schedules
    WHERE NOT schedules.paused
      AND schedules.declared_at < now() - (@after::bigint) * interval '1 microsecond'
    ORDER BY schedules.name
    FOR UPDATE SKIP LOCKED
), skipped AS (
    INSERT INTO durable.skips (schedule, first_at, last_at, reason)
    SELECT orphaned.id, orphaned.next_at, now(), 'changed'
    FROM orphaned
    WHERE orphaned.next_at <= now()
), disabled AS (
    UPDATE durable.schedules
    SET paused = true,
        paused_by = @actor::text,
        look_at = 'infinity'
    FROM orphaned
    WHERE schedules.id = orphaned.id
    RETURNING schedules.name
)
INSERT INTO durable.audit (actor, kind, subject, action)
SELECT @actor::text, @kind::text, disabled.name, @paused::text
FROM disabled;

-- name: PruneSkips :exec
-- Deletes all skips of a schedule but the latest so many.
-- Index: skips_schedule, all of it. Idempotent: a repeat finds no older ones.
DELETE FROM durable.skips
USING (
    SELECT ranked.id
    FROM (
        SELECT
            any_skip.id,
            row_number() OVER (
                PARTITION BY any_skip.schedule
                ORDER BY any_skip.id DESC
            ) AS place
        FROM durable.skips any_skip
    ) ranked
    WHERE ranked.place > (@keep::bigint)
) old
WHERE skips.id = old.id;

-- name: Jobs :many
-- Index: jobs_pkey in order; a small table. Locks: none.
SELECT
    name, queue, priority, max_attempts, timeout, on_crash, retention,
    coalesce(limits::text, '')::text AS limits,
    coalesce(code::text, '')::text AS code
FROM durable.jobs
ORDER BY name;
