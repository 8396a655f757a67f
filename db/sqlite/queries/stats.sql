-- What workers report.

-- name: ReportWorker :execrows
-- Index: the primary key. Idempotent: the row remembers the number of the report.
INSERT INTO workers (instance, name, started_at, declared_at, reported_at, reports, report)
VALUES (@instance, @name, @now, @now, @now, @number, @report)
ON CONFLICT (instance) DO UPDATE
SET declared_at = excluded.declared_at,
    reported_at = excluded.reported_at,
    reports = excluded.reports,
    report = excluded.report
WHERE workers.reports < excluded.reports;

-- name: CountReported :one
-- A scan of workers, of which there are few.
SELECT count(*)
FROM workers
WHERE report IS NOT NULL
  AND reported_at >= @since;

-- name: FindStats :one
-- Index: the primary key.
SELECT tally
FROM stats
WHERE span = @span
  AND queue = @queue
  AND job = @job
  AND at = @at;

-- name: SetStats :exec
-- Index: the primary key.
INSERT INTO stats (span, queue, job, at, tally)
VALUES (@span, @queue, @job, @at, @tally)
ON CONFLICT (span, queue, job, at) DO UPDATE
SET tally = excluded.tally;

-- name: ListStats :many
-- Index: the primary key: of one name, or all of one span.
SELECT at, queue, job, tally
FROM stats
WHERE span = @span
  AND (queue = '') = CAST(@all_lanes AS INTEGER)
  AND (@queue = '' OR queue = @queue)
  AND (@job = '' OR job = @job)
  AND at >= @since
ORDER BY at DESC, queue DESC, job DESC
LIMIT @most;

-- name: PruneStats :exec
-- A scan of the primary key.
DELETE FROM stats
WHERE span = @span
  AND at < @before;
