-- What workers report.

-- name: ReportWorker :one
-- A report that the worker's row has not seen is stored, and what was done is added to the
-- minute and the quarter of an hour. Index: workers_instance_key, stats_pkey,
-- workers_present for the number of living workers. Locks: the worker's row, then those of
-- stats in the order of their key, so that two reports never wait for each other.
-- Idempotent: the row remembers the number of the report, and a repeat adds nothing.
WITH stored AS (
    UPDATE durable.workers
    SET seen_at = now(),
        reported_at = now(),
        present = NOT @stopped::boolean,
        reports = @number::bigint,
        report = cast(@report::text AS json)
    WHERE instance = @instance::uuid
      AND reports < @number::bigint
    RETURNING id
), done AS MATERIALIZED (
    SELECT
        unnest(@queues::text[]) AS queue,
        unnest(@jobs::text[]) AS job,
        unnest(@enqueued::bigint[]) AS enqueued,
        unnest(@succeeded::bigint[]) AS succeeded,
        unnest(@failed::bigint[]) AS failed,
        unnest(@dead::bigint[]) AS dead,
        unnest(@cancelled::bigint[]) AS cancelled,
        unnest(@crashed::bigint[]) AS crashed,
        unnest(@busy::bigint[]) AS busy,
        unnest(@waits::text[]) AS wait,
        unnest(@took::text[]) AS took
), added AS (
    INSERT INTO durable.stats AS known (
        span, queue, job, at, enqueued, succeeded, failed, dead, cancelled, crashed, busy, wait,
        took
    )
    SELECT
        spans.span,
        done.queue,
        done.job,
        date_bin(spans.span * interval '1 minute', now(), timestamptz '2000-01-01 00:00:00+00'),
        done.enqueued,
        done.succeeded,
        done.failed,
        done.dead,
        done.cancelled,
        done.crashed,
        done.busy,
        done.wait::bigint[],
        done.took::bigint[]
    FROM done
    CROSS JOIN (SELECT unnest(@spans::smallint[]) AS span) spans
    WHERE EXISTS (SELECT FROM stored)
    ORDER BY spans.span, done.queue, done.job
    ON CONFLICT (span, queue, job, at) DO UPDATE
    SET enqueued = known.enqueued + excluded.enqueued,
        succeeded = known.succeeded + excluded.succeeded,
        failed = known.failed + excluded.failed,
        dead = known.dead + excluded.dead,
        cancelled = known.cancelled + excluded.cancelled,
        crashed = known.crashed + excluded.crashed,
        busy = known.busy + excluded.busy,
        wait = ARRAY(
            SELECT known.wait[place.i] + excluded.wait[place.i]
            FROM generate_series(1, array_length(known.wait, 1)) AS place (i)
            ORDER BY place.i
        ),
        took = ARRAY(
            SELECT known.took[place.i] + excluded.took[place.i]
            FROM generate_series(1, array_length(known.took, 1)) AS place (i)
            ORDER BY place.i
        )
)
SELECT
    now()::timestamptz AS now,
    EXISTS (
        SELECT
        FROM durable.workers
        WHERE workers.instance = @instance::uuid
    )::boolean AS known,
    (
        SELECT count(*)
        FROM durable.workers
        WHERE workers.present
          AND workers.instance <> @instance::uuid
          AND workers.reported_at > now() - (@within::bigint) * interval '1 microsecond'
    )::bigint AS others;

-- name: Series :many
-- Index: stats_pkey: of the queues from the first to the last one asked for, the empty name
-- being that of all together. The job is a range, so that the index alone decides which
-- rows are read. Locks: none.
SELECT
    stats.at,
    stats.queue,
    stats.job,
    stats.enqueued,
    stats.succeeded,
    stats.failed,
    stats.dead,
    stats.cancelled,
    stats.crashed,
    stats.busy,
    stats.wait,
    stats.took
FROM durable.stats
WHERE stats.span = @span::smallint
  AND stats.queue >= @first_queue::text
  AND stats.queue <= @last_queue::text
  AND (stats.queue = '') = @all_lanes::boolean
  AND (@queue::text = '' OR stats.queue = @queue::text)
  AND stats.job >= @job::text
  AND stats.job <= (CASE WHEN @job::text = '' THEN chr(1114111) ELSE @job::text END)
  AND stats.at >= now() - (@within::bigint) * interval '1 microsecond'
ORDER BY stats.at DESC, stats.queue DESC, stats.job DESC
LIMIT @most::int;

-- name: PruneStats :exec
-- Steps of a span that began longer ago than so many microseconds, at most so many.
-- Index: stats_pkey, all of it. Locks: the rows with SKIP LOCKED.
-- Idempotent: a repeat finds no rows, or the next ones.
DELETE FROM durable.stats
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM durable.stats old
    WHERE old.span = @span::smallint
      AND old.at < now() - (@kept::bigint) * interval '1 microsecond'
    LIMIT @most::int
    FOR UPDATE SKIP LOCKED
));
