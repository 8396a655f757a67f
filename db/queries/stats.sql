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
-- Index: stats_pkey: one probe for each queue and job that has steps of the span, from the
-- first to the last queue asked for, then the steps of those asked for alone. The empty
-- queue is that of all together. Steps are added up to longer ones; an array is unpacked
-- once for all of its elements. Locks: none.
WITH RECURSIVE reported AS (
    (
        SELECT stats.queue, stats.job
        FROM durable.stats
        WHERE stats.span = @span::smallint
          AND stats.queue >= @first_queue::text
          AND stats.queue <= @last_queue::text
        ORDER BY stats.queue, stats.job
        LIMIT 1
    )
    UNION ALL
    SELECT further.queue, further.job
    FROM reported
    CROSS JOIN LATERAL (
        SELECT stats.queue, stats.job
        FROM durable.stats
        WHERE stats.span = @span::smallint
          AND (stats.queue, stats.job) > (reported.queue, reported.job)
          AND stats.queue <= @last_queue::text
        ORDER BY stats.queue, stats.job
        LIMIT 1
    ) further
)
SELECT
    steps.at, steps.queue, steps.job,
    sum(steps.enqueued)::bigint AS enqueued,
    sum(steps.succeeded)::bigint AS succeeded,
    sum(steps.failed)::bigint AS failed,
    sum(steps.dead)::bigint AS dead,
    sum(steps.cancelled)::bigint AS cancelled,
    sum(steps.crashed)::bigint AS crashed,
    sum(steps.busy)::bigint AS busy,
    ARRAY[
        coalesce(sum(steps.wait[1]), 0), coalesce(sum(steps.wait[2]), 0),
        coalesce(sum(steps.wait[3]), 0), coalesce(sum(steps.wait[4]), 0),
        coalesce(sum(steps.wait[5]), 0), coalesce(sum(steps.wait[6]), 0),
        coalesce(sum(steps.wait[7]), 0), coalesce(sum(steps.wait[8]), 0),
        coalesce(sum(steps.wait[9]), 0), coalesce(sum(steps.wait[10]), 0),
        coalesce(sum(steps.wait[11]), 0), coalesce(sum(steps.wait[12]), 0),
        coalesce(sum(steps.wait[13]), 0), coalesce(sum(steps.wait[14]), 0),
        coalesce(sum(steps.wait[15]), 0), coalesce(sum(steps.wait[16]), 0)
    ]::bigint[] AS wait,
    ARRAY[
        coalesce(sum(steps.took[1]), 0), coalesce(sum(steps.took[2]), 0),
        coalesce(sum(steps.took[3]), 0), coalesce(sum(steps.took[4]), 0),
        coalesce(sum(steps.took[5]), 0), coalesce(sum(steps.took[6]), 0),
        coalesce(sum(steps.took[7]), 0), coalesce(sum(steps.took[8]), 0),
        coalesce(sum(steps.took[9]), 0), coalesce(sum(steps.took[10]), 0),
        coalesce(sum(steps.took[11]), 0), coalesce(sum(steps.took[12]), 0),
        coalesce(sum(steps.took[13]), 0), coalesce(sum(steps.took[14]), 0),
        coalesce(sum(steps.took[15]), 0), coalesce(sum(steps.took[16]), 0)
    ]::bigint[] AS took
FROM (
    SELECT
        durable.step_of(kept.at, @step::bigint)::timestamptz AS at,
        reported.queue, reported.job,
        kept.enqueued, kept.succeeded, kept.failed, kept.dead, kept.cancelled, kept.crashed,
        kept.busy,
        CASE WHEN @times::boolean THEN kept.wait || '{}' END AS wait,
        CASE WHEN @times::boolean THEN kept.took || '{}' END AS took
    FROM reported
    CROSS JOIN LATERAL (
        SELECT
            stats.at, stats.enqueued, stats.succeeded, stats.failed, stats.dead, stats.cancelled,
            stats.crashed, stats.busy, stats.wait, stats.took
        FROM durable.stats
        WHERE stats.span = @span::smallint
          AND stats.queue = reported.queue
          AND stats.job = reported.job
          AND stats.at >= now() - (@within::bigint) * interval '1 microsecond'
        ORDER BY stats.at DESC
        LIMIT @most::int
    ) kept
    WHERE (reported.queue = '') = @all_lanes::boolean
      AND @job::text IN ('', reported.job)
    OFFSET 0
) steps
GROUP BY steps.at, steps.queue, steps.job
ORDER BY steps.at DESC, steps.queue DESC, steps.job DESC
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
