-- What decides about one run.

-- name: LastAttempt :many
-- Index: attempts_pkey backwards, one row. Locks: none.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log
FROM durable.attempts
WHERE run_id = @run_id
ORDER BY fence DESC
LIMIT 1;

-- name: LeaseOfRun :many
-- The lease of the claim that executes a run, and why the run is to be cancelled.
-- Index: runs_pkey, leases_pkey, workers_pkey, beats_pkey. Locks: none.
SELECT
    (leases.claim_id IS NOT NULL)::boolean AS leased,
    coalesce(workers.name, '')::text AS worker,
    coalesce(workers.instance, '00000000-0000-0000-0000-000000000000')::uuid AS instance,
    coalesce(leases.acquired_at, 'epoch')::timestamptz AS acquired_at,
    coalesce(leases.expires_at, beats.expires_at, 'epoch')::timestamptz AS expires_at,
    coalesce(
        CASE
            WHEN leases.expires_at IS NULL THEN beats.duration
            ELSE leases.duration
        END,
        0
    )::bigint AS duration,
    coalesce(runs.cancel, '')::text AS cancel
FROM durable.runs
LEFT JOIN durable.leases ON leases.claim_id = runs.claim_id
LEFT JOIN durable.beats ON beats.id = leases.beat
LEFT JOIN durable.workers ON workers.id = leases.worker
WHERE runs.id = @id
  AND runs.state = durable.running();

-- name: PauseOfRun :many
-- Who has paused the queue of a run, if it is paused.
-- Index: runs_pkey, lanes_pkey, queues_pkey, audit_subject backwards. Locks: none.
SELECT
    coalesce(pause.actor, '')::text AS actor,
    coalesce(pause.at, 'epoch')::timestamptz AS at
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
LEFT JOIN LATERAL (
    SELECT audit.actor, audit.at
    FROM durable.audit
    WHERE audit.kind = 'queue'
      AND audit.subject = lanes.queue
      AND audit.action = 'pause'
    ORDER BY audit.id DESC
    LIMIT 1
) pause ON true
WHERE runs.id = @id
  AND lanes.paused
  AND NOT EXISTS (
      SELECT
      FROM durable.queues
      WHERE queues.name = lanes.queue
        AND queues.cap IS NOT NULL
        AND NOT queues.stopped
  );

-- name: BulkDeletes :many
-- For a run that is not there: the latest deletions by a filter since an instant, among the
-- newest changes. Index: runs_pkey, audit_pkey backwards, so many rows. Locks: none.
SELECT
    newest.id, newest.at, newest.actor, newest.kind, newest.subject, newest.action,
    coalesce(newest.detail::text, '')::text AS detail,
    coalesce(newest.runs, 0)::bigint AS runs
FROM (
    SELECT
        audit.id, audit.at, audit.actor, audit.kind, audit.subject, audit.action, audit.detail,
        audit.runs
    FROM durable.audit
    ORDER BY audit.id DESC
    LIMIT @examined::int
) newest
WHERE newest.kind = 'bulk'
  AND newest.action = 'delete'
  AND newest.at >= @since::timestamptz
  AND NOT EXISTS (
      SELECT
      FROM durable.runs
      WHERE runs.id = @run_id::uuid
  )
ORDER BY newest.id DESC
LIMIT @most::int;

-- name: LanesBefore :many
-- The lanes of which runs are claimed before one that is due and not limited: of its own
-- lane what is due earlier, of those of higher priorities all that is due, of the others
-- of its priority what is due earlier. An isolated run has only its own line.
-- Index: runs_pkey; reads lanes, a small table; ready_order for each lane, up to so many
-- rows; stats_pkey. Locks: none.
WITH subject AS (
    SELECT runs.id, runs.lane, runs.due_at, lanes.queue, lanes.job, lanes.priority
    FROM durable.runs
    JOIN durable.lanes ON lanes.id = abs(runs.lane)
    WHERE runs.id = @id
      AND runs.state = durable.pending()
      AND runs.due_at <= now()
      AND runs.gates IS NULL
), near_lanes AS (
    SELECT
        sign(subject.lane)::int * lanes.id AS line,
        lanes.queue,
        lanes.job,
        lanes.priority,
        CASE
            WHEN lanes.priority > subject.priority THEN now()
            ELSE subject.due_at
        END AS to_due,
        CASE
            WHEN lanes.priority > subject.priority THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'
            ELSE subject.id
        END::uuid AS to_id,
        CASE
            WHEN lanes.queue = subject.queue AND lanes.job = subject.job THEN 0
            WHEN lanes.queue = subject.queue THEN 1
            ELSE 2
        END AS far
    FROM subject
    JOIN durable.lanes ON lanes.priority >= subject.priority
    WHERE (
          NOT lanes.paused
          OR lanes.queue IN (
              SELECT queues.name
              FROM durable.queues
              WHERE queues.cap IS NOT NULL
                AND NOT queues.stopped
          )
      )
      AND (subject.lane > 0 OR lanes.id = -subject.lane)
    ORDER BY far, lanes.priority DESC, lanes.id
    LIMIT @lanes::int
)
SELECT
    near_lanes.queue,
    near_lanes.job,
    near_lanes.priority,
    near_lanes.far,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.ready
            WHERE ready.lane = near_lanes.line
              AND (ready.due_at, ready.run_id) < (near_lanes.to_due, near_lanes.to_id)
            LIMIT CASE
                WHEN near_lanes.far = 0 THEN @most::int
                ELSE @others::int
            END
        ) ahead
    )::bigint AS ahead,
    (
        SELECT coalesce(sum(stats.succeeded + stats.failed + stats.dead + stats.cancelled), 0)
        FROM durable.stats
        WHERE stats.span = durable.minute()
          AND stats.queue = near_lanes.queue
          AND stats.job = near_lanes.job
          AND stats.at >= now() - (@lately::bigint) * interval '1 microsecond'
    )::bigint AS ended
FROM near_lanes
ORDER BY near_lanes.far, near_lanes.priority DESC;

-- name: HolderOfRow :many
-- The transaction that has written or locked a pending run's row, and has not ended.
-- Index: runs_pkey; reads the server's locks and activity. Locks: none.
SELECT
    held.pid::int AS pid,
    coalesce(activity.application_name, '')::text AS application,
    coalesce(activity.xact_start, 'epoch')::timestamptz AS since
FROM durable.runs
JOIN pg_catalog.pg_locks held ON held.transactionid = runs.xmax
LEFT JOIN pg_catalog.pg_stat_activity activity ON activity.pid = held.pid
WHERE runs.id = @id
  AND runs.state = durable.pending()
  AND held.locktype = 'transactionid'
  AND held.mode = 'ExclusiveLock'
  AND held.granted
LIMIT 1;

-- name: KeyHolderOf :many
-- The run that has the unique key of an ended run, if it is another.
-- Index: runs_pkey, lanes_pkey, unique_keys_pkey. Locks: none.
SELECT
    unique_keys.run_id,
    coalesce(unique_keys.held_to > now(), false)::boolean AS held,
    coalesce(holder.state, -1)::smallint AS state
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
JOIN durable.unique_keys ON unique_keys.job = lanes.job AND unique_keys.key = runs.key
LEFT JOIN durable.runs holder ON holder.id = unique_keys.run_id
WHERE runs.id = @id
  AND runs.state IN (durable.dead(), durable.cancelled())
  AND unique_keys.run_id <> runs.id;

-- name: Problems :many
-- The dead runs that ended last, of those that were acknowledged or not.
-- Index: problems_ended backwards, so many rows and no more, lanes_pkey. Locks: none.
SELECT
    newest.run_id,
    lanes.job,
    lanes.queue,
    newest.ended_at,
    left(coalesce(newest.reason, ''), 500)::text AS reason,
    newest.acknowledged_at,
    coalesce(newest.acknowledged_by, '')::text AS acknowledged_by
FROM (
    SELECT
        problems.run_id, problems.ended_at, problems.reason, problems.lane,
        problems.acknowledged_at, problems.acknowledged_by
    FROM durable.problems
    WHERE problems.state = durable.dead()
      AND (problems.acknowledged_at IS NULL) = @open::boolean
      AND problems.ended_at >= @since::timestamptz
    ORDER BY problems.ended_at DESC, problems.run_id DESC
    LIMIT @most::int
) newest
JOIN durable.lanes ON lanes.id = newest.lane
ORDER BY newest.ended_at DESC, newest.run_id DESC;

-- name: ProblemsOf :many
-- Problems of some jobs or queues: where so few runs of them are dead, all of these are
-- read, otherwise those among the dead runs that ended last.
-- Index: reads lanes, a small table; problems_lane for each lane, up to one row more than
-- few; with more, problems_ended backwards, so many rows. Locks: none.
WITH wanted_lanes AS MATERIALIZED (
    SELECT lanes.id, lanes.job, lanes.queue
    FROM durable.lanes
    WHERE (cardinality(@jobs::text[]) = 0 OR lanes.job = ANY (@jobs::text[]))
      AND (cardinality(@queues::text[]) = 0 OR lanes.queue = ANY (@queues::text[]))
), of_lanes AS MATERIALIZED (
    SELECT
        dead.run_id, dead.ended_at, dead.reason, dead.lane, dead.acknowledged_at,
        dead.acknowledged_by
    FROM wanted_lanes
    CROSS JOIN LATERAL (
        SELECT
            problems.run_id, problems.ended_at, problems.reason, problems.lane,
            problems.acknowledged_at, problems.acknowledged_by
        FROM durable.problems
        WHERE problems.state = durable.dead()
          AND problems.lane = wanted_lanes.id
        LIMIT 1 + @few::int
    ) dead
    LIMIT 1 + @few::int
), many AS MATERIALIZED (
    SELECT count(*) > @few::int AS too_many
    FROM of_lanes
), newest AS (
    SELECT
        problems.run_id, problems.ended_at, problems.reason, problems.lane,
        problems.acknowledged_at, problems.acknowledged_by
    FROM durable.problems
    WHERE problems.state = durable.dead()
      AND (problems.acknowledged_at IS NULL) = @open::boolean
      AND problems.ended_at >= @since::timestamptz
      AND (SELECT many.too_many FROM many)
    ORDER BY problems.ended_at DESC, problems.run_id DESC
    LIMIT @examined::int
), found AS (
    SELECT
        of_lanes.run_id, of_lanes.ended_at, of_lanes.reason, of_lanes.lane,
        of_lanes.acknowledged_at, of_lanes.acknowledged_by
    FROM of_lanes
    WHERE (of_lanes.acknowledged_at IS NULL) = @open::boolean
      AND of_lanes.ended_at >= @since::timestamptz
      AND NOT (SELECT many.too_many FROM many)
    UNION ALL
    SELECT
        newest.run_id, newest.ended_at, newest.reason, newest.lane, newest.acknowledged_at,
        newest.acknowledged_by
    FROM newest
)
SELECT
    found.run_id,
    wanted_lanes.job,
    wanted_lanes.queue,
    found.ended_at,
    left(coalesce(found.reason, ''), 500)::text AS reason,
    found.acknowledged_at,
    coalesce(found.acknowledged_by, '')::text AS acknowledged_by
FROM found
JOIN wanted_lanes ON wanted_lanes.id = found.lane
ORDER BY found.ended_at DESC, found.run_id DESC
LIMIT @most::int;
