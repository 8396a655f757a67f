-- name: DeclareWorker :exec
INSERT INTO workers (instance, name, started_at, declared_at)
VALUES (@instance, @name, @declared_at, @declared_at)
ON CONFLICT (instance) DO UPDATE
SET name = excluded.name,
    declared_at = excluded.declared_at;

-- name: DeclareJob :exec
INSERT INTO jobs (
    name, queue, priority, max_attempts, timeout, on_crash, retention, declared_at, limits, code
)
VALUES (
    @name, @queue, @priority, @max_attempts, @timeout, @on_crash, @retention, @declared_at, @limits,
    @code
)
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    timeout = excluded.timeout,
    on_crash = excluded.on_crash,
    retention = excluded.retention,
    declared_at = excluded.declared_at,
    limits = excluded.limits,
    code = excluded.code;

-- name: FindJobCode :one
-- Index: the primary key.
SELECT code
FROM jobs
WHERE name = @name;

-- name: ListJobs :many
SELECT name, queue, priority, max_attempts, timeout, on_crash, retention, limits, code
FROM jobs
ORDER BY name;

-- name: FindWorkerStart :one
SELECT started_at
FROM workers
WHERE instance = @instance;

-- name: FindSchedule :one
-- Index: the primary key.
SELECT
    generation, hash, paused,
    coalesce(paused_by, '') AS paused_by,
    hash_at, brought_at, unfinished, spec, job, queue, priority, args, max_attempts, timeout,
    on_crash, tags
FROM schedules
WHERE name = @name;

-- name: TouchSchedule :exec
-- A worker has declared it, with the stored hash or with another.
UPDATE schedules
SET declared_at = @now,
    hash_at = CASE WHEN hash = @hash THEN @now ELSE hash_at END
WHERE name = @name;

-- name: InsertSchedule :exec
-- Not planned yet, and to be examined unless it is paused.
INSERT INTO schedules (
    declared_at, look_at, hash_at, brought_at, generation, paused, edited, hash, spec, job, queue,
    priority, args, max_attempts, timeout, on_crash, tags, name
)
VALUES (
    @declared_at, @look_at, @hash_at, @brought_at, @generation, @paused, @edited, @hash, @spec,
    @job, @queue, @priority, @args, @max_attempts, @timeout, @on_crash, @tags, @name
);

-- name: ReplaceSchedule :exec
-- A new generation, planned again unless its plan is to be kept.
UPDATE schedules
SET look_at = CASE WHEN paused THEN NULL WHEN @keep AND fault IS NULL THEN look_at ELSE @now END,
    next_at = CASE WHEN @keep THEN next_at END,
    waiting = CASE WHEN @keep AND fault IS NULL THEN waiting ELSE 0 END,
    fault = NULL,
    generation = generation + 1,
    hash_at = @hash_at,
    brought_at = @brought_at,
    edited = @edited,
    hash = @hash,
    spec = @spec,
    job = @job,
    queue = @queue,
    priority = @priority,
    args = @args,
    max_attempts = @max_attempts,
    timeout = @timeout,
    on_crash = @on_crash,
    tags = @tags
WHERE name = @name;

-- name: ListOrphans :many
-- Reads the whole table, a small one.
SELECT name
FROM schedules
WHERE NOT paused
  AND declared_at < @since
ORDER BY name;

-- name: SkippedSchedules :many
-- Index: skips_schedule, all of it.
SELECT schedule
FROM skips
GROUP BY schedule;

-- name: OldestSkip :one
-- Index: skips_schedule: the latest that is not kept.
SELECT seq
FROM skips
WHERE schedule = @schedule
ORDER BY seq DESC
LIMIT 1
OFFSET @keep;

-- name: PruneSkips :exec
-- Index: skips_schedule.
DELETE FROM skips
WHERE schedule = @schedule
  AND seq <= @seq;
