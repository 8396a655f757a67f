-- name: DeclareWorker :exec
INSERT INTO workers (instance, name, started_at, declared_at) VALUES (@instance, @name, @declared_at, @declared_at)
ON CONFLICT (instance) DO UPDATE SET name = excluded.name, declared_at = excluded.declared_at;

-- name: DeclareJob :exec
INSERT INTO jobs (name, queue, priority, max_attempts, timeout, on_crash, declared_at)
VALUES (@name, @queue, @priority, @max_attempts, @timeout, @on_crash, @declared_at)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, on_crash = excluded.on_crash, declared_at = excluded.declared_at;

-- name: ListJobs :many
SELECT name, queue, priority, max_attempts, timeout, on_crash FROM jobs ORDER BY name;

-- name: FindScheduleHash :one
SELECT hash FROM schedules WHERE name = @name;

-- name: TouchSchedule :exec
UPDATE schedules SET declared_at = @declared_at WHERE name = @name;

-- name: InsertSchedule :exec
-- Not planned yet, and to be looked at now.
INSERT INTO schedules (declared_at, look_at, generation, hash, cron, zone, every, job, queue, priority, args, max_attempts, timeout, on_crash, tags, name)
VALUES (@declared_at, @declared_at, 1, @hash, @cron, @zone, @every, @job, @queue, @priority, @args, @max_attempts, @timeout, @on_crash, @tags, @name);

-- name: ReplaceSchedule :exec
-- Another rule: a new generation, planned afresh.
UPDATE schedules SET declared_at = @declared_at, look_at = @declared_at, next_at = NULL, fault = NULL, generation = generation + 1,
    hash = @hash, cron = @cron, zone = @zone, every = @every, job = @job, queue = @queue, priority = @priority, args = @args,
    max_attempts = @max_attempts, timeout = @timeout, on_crash = @on_crash, tags = @tags
WHERE name = @name;
