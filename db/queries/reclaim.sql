-- Crash policies: 0 retry, 1 dead. Outcomes of an attempt: 7 crash.

-- name: ExpiredLease :one
-- The first question of every reclaim, and mostly the only one: held says whether there
-- is any lease, expired whether one has expired, soon whether one will within so many
-- microseconds, and server which server answers, by when it was started.
-- Index: the head of leases_expiry; beats, which has a row per process, with a probe of
-- leases_beat for each that has expired or is about to. Locks: none.
SELECT
    now()::timestamptz AS now,
    (
        first.expires_at IS NOT NULL
        OR EXISTS (
            SELECT
            FROM durable.leases
            WHERE leases.beat IS NOT NULL
        )
    )::boolean AS held,
    (
        coalesce(first.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz), false)
        OR EXISTS (
            SELECT
            FROM durable.beats
            WHERE beats.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz)
              AND EXISTS (
                  SELECT
                  FROM durable.leases
                  WHERE leases.beat = beats.id
              )
        )
    )::boolean AS expired,
    (
        coalesce(
            first.expires_at <= now() + (@ahead::bigint) * interval '1 microsecond',
            false
        )
        OR EXISTS (
            SELECT
            FROM durable.beats
            WHERE beats.expires_at <= now() + (@ahead::bigint) * interval '1 microsecond'
              AND EXISTS (
                  SELECT
                  FROM durable.leases
                  WHERE leases.beat = beats.id
              )
        )
    )::boolean AS soon,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS server
FROM (SELECT min(expires_at) AS expires_at FROM durable.leases) first;

-- name: EndBeats :exec
-- Before ReclaimRuns in its transaction: leases that follow an expired beat expire by
-- themselves, when it did; no more than can be reclaimed, none of those set aside, and
-- just the one that is named, if one is.
-- Index: beats, leases_beat, leases_pkey. Locks: the beats and then the leases, both with
-- SKIP LOCKED: a process that renews now keeps its leases. The row of the beat stays, so
-- that no lease can follow one that is gone, and is written: a transaction that waits to
-- renew it in an older snapshot (repeatable read) has to start over.
-- Idempotent: a repeat ends further ones, or none.
WITH ended AS MATERIALIZED (
    SELECT beats.id, beats.expires_at
    FROM durable.beats
    WHERE beats.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz)
      AND EXISTS (
          SELECT
          FROM durable.leases
          WHERE leases.beat = beats.id
            AND leases.claim_id <> ALL (@aside::uuid[])
            AND (sqlc.narg(just)::uuid IS NULL OR leases.claim_id = sqlc.narg(just)::uuid)
      )
    ORDER BY beats.expires_at
    LIMIT @most
    FOR UPDATE SKIP LOCKED
), written AS (
    UPDATE durable.beats
    SET before = before
    WHERE id = ANY (ARRAY(SELECT ended.id FROM ended))
)
UPDATE durable.leases
SET beat = NULL,
    expires_at = (
        SELECT ended.expires_at
        FROM ended
        WHERE ended.id = leases.beat
    )
WHERE claim_id = ANY (ARRAY(
        SELECT following.claim_id
        FROM durable.leases following
        WHERE following.beat = ANY (ARRAY(SELECT ended.id FROM ended))
          AND following.claim_id <> ALL (@aside::uuid[])
          AND (sqlc.narg(just)::uuid IS NULL OR following.claim_id = sqlc.narg(just)::uuid)
        LIMIT @most
        FOR UPDATE SKIP LOCKED
    ))
  AND beat = ANY (ARRAY(SELECT ended.id FROM ended));

-- name: ReclaimRuns :many
-- Takes runs back from expired leases: counts the crash, and requeues or ends them as
-- their crash policy and a cancel request say, judged by the locked row.
-- A lease of which nothing could be taken is returned as stuck, for the next reclaim to
-- pass over. The lease row stays, and is tried again, while a user's transaction has
-- locked one of its runs, while more runs are left than are taken at a time, or while a
-- run is set aside; runs may name those to take, and just the lease. A lease that stays
-- although a part of it was taken gets the duration zero: no renewal extends it, so that
-- its worker learns that it has lost it. Freed are the lines of turns for places that it
-- has freed.
-- Index: leases_expiry, then runs_pkey. Locks: expired leases, then their runs, both with
-- SKIP LOCKED. Idempotent: a repeat finds nothing expired, or the next runs.
WITH expired AS MATERIALIZED (
    SELECT claim_id, alone, run_ids, gates, strict
    FROM durable.leases
    WHERE expires_at <= least(now(), sqlc.narg(horizon)::timestamptz)
      AND claim_id <> ALL (@stuck::uuid[])
      AND (sqlc.narg(just)::uuid IS NULL OR claim_id = sqlc.narg(just)::uuid)
    ORDER BY expires_at
    LIMIT @most
    FOR UPDATE SKIP LOCKED
), locked_runs AS MATERIALIZED (
    SELECT id, claim_id
    FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT unnest(expired.run_ids) FROM expired))
      AND claim_id = ANY (ARRAY(SELECT expired.claim_id FROM expired))
      AND state = durable.running()
      AND id <> ALL (@aside::uuid[])
      AND (sqlc.narg(runs)::uuid[] IS NULL OR id = ANY (sqlc.narg(runs)::uuid[]))
    LIMIT @most_runs
    FOR NO KEY UPDATE SKIP LOCKED
), reclaimed AS (
    UPDATE durable.runs
    SET crash_count = least(crash_count + 1, @most_crashes::int),
        attempt = attempt - 1,
        claim_id = NULL,
        due_at = now(),
        state = CASE
            WHEN
-- block: dies-of-crash
                on_crash <> durable.crash_retry()
                OR crash_count + 1 >= @max_crashes::int
                AND (SELECT expired.alone FROM expired WHERE expired.claim_id = runs.claim_id)
-- end
                THEN durable.dead()
-- block: released
            WHEN cancel IS NOT NULL THEN durable.cancelled()
            ELSE durable.pending()
-- end
        END,
        finished_at = CASE
            WHEN
-- block: dies-of-crash
                on_crash <> durable.crash_retry()
                OR crash_count + 1 >= @max_crashes::int
                AND (SELECT expired.alone FROM expired WHERE expired.claim_id = runs.claim_id)
-- end
                OR cancel IS NOT NULL
                THEN now()
        END,
        lane = CASE WHEN crash_count + 1 >= @isolation::int THEN -abs(lane) ELSE lane END
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
      AND claim_id = ANY (ARRAY(SELECT expired.claim_id FROM expired))
      AND state = durable.running()
    RETURNING
        id, lane, due_at, state, crash_count, attempt, fence, started_at, worker, on_crash, cancel,
        gates, limits, strict
), crashed AS MATERIALIZED (
    SELECT
        reclaimed.id,
        reclaimed.lane,
        reclaimed.due_at,
        reclaimed.state,
        reclaimed.crash_count,
        reclaimed.attempt,
        reclaimed.fence,
        reclaimed.started_at,
        reclaimed.on_crash,
        reclaimed.cancel,
        lanes.queue,
        lanes.job,
        coalesce(durable.worker_name(reclaimed.worker), '?')::text AS worker
    FROM reclaimed
    JOIN durable.lanes ON lanes.id = abs(reclaimed.lane)
), queued AS (
-- block: enter-line of reclaimed
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT reclaimed.lane, reclaimed.due_at, reclaimed.id
    FROM reclaimed
-- end
    WHERE reclaimed.state = durable.pending()
      AND reclaimed.gates IS NULL
), lined AS (
-- block: enter-waiting of reclaimed
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(reclaimed.id, reclaimed.gates, reclaimed.strict),
        reclaimed.lane,
        reclaimed.due_at,
        reclaimed.id,
        durable.is_more(reclaimed.gates, reclaimed.limits)
    FROM reclaimed
-- end
    WHERE reclaimed.state = durable.pending()
      AND reclaimed.gates IS NOT NULL
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
), recorded AS (
    INSERT INTO durable.attempts (
        run_id, fence, number, outcome, worker, started_at, ended_at, error
    )
    SELECT
        crashed.id,
        crashed.fence,
        crashed.attempt + 1,
        durable.crash(),
        crashed.worker,
        coalesce(crashed.started_at, now()),
        now(),
        format(@lease_expired::text, crashed.worker, crashed.crash_count)
    FROM crashed
    ON CONFLICT DO NOTHING
), reported AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT
        crashed.id,
        now(),
        crashed.state,
        CASE
            WHEN crashed.state = durable.cancelled()
                THEN crashed.cancel
            WHEN crashed.on_crash <> durable.crash_retry()
                THEN @crashed_dead::text
            ELSE format(
                @crashed_alone::text,
                crashed.crash_count
            )
        END,
        abs(crashed.lane)
    FROM crashed
    WHERE durable.is_problem(crashed.state)
    ON CONFLICT DO NOTHING
), ended AS (
    DELETE FROM durable.leases
    WHERE claim_id = ANY (ARRAY(SELECT expired.claim_id FROM expired))
      AND NOT EXISTS (
          SELECT
          FROM durable.runs
          WHERE runs.id = ANY (leases.run_ids)
            AND runs.claim_id = leases.claim_id
            AND runs.state = durable.running()
            AND runs.id NOT IN (SELECT locked_runs.id FROM locked_runs)
      )
    RETURNING claim_id
), taken_in_part AS (
    UPDATE durable.leases
    SET duration = 0
    WHERE claim_id = ANY (ARRAY(SELECT locked_runs.claim_id FROM locked_runs))
      AND claim_id <> ALL (ARRAY(SELECT ended.claim_id FROM ended))
), examined AS (
    SELECT locked_runs.claim_id
    FROM locked_runs
    UNION
    SELECT ended.claim_id
    FROM ended
), isolated AS (
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT known.limit_id, reclaimed.lane
    FROM reclaimed
    JOIN durable.limit_lanes known ON known.lane = -reclaimed.lane
    WHERE reclaimed.lane < 0
      AND reclaimed.state = durable.pending()
      AND reclaimed.gates IS NOT NULL
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
), listed AS (
-- block: read-lines of reclaimed
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), reclaimed.lane
    FROM reclaimed
    CROSS JOIN LATERAL pg_catalog.unnest(reclaimed.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = reclaimed.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), gone AS (
    SELECT locked_runs.id
    FROM locked_runs
), released AS (
    DELETE FROM durable.permits
    WHERE gate = ANY (ARRAY(SELECT unnest(expired.gates) FROM expired))
      AND owner = ANY (ARRAY(SELECT ended.claim_id FROM ended))
    RETURNING gate
), reduced AS (
    UPDATE durable.permits
-- block: reduce-permits
    SET (runs, k) = (
        SELECT
            coalesce(array_agg(staying.run ORDER BY staying.run), '{}'),
            CASE
                WHEN permits.k = cardinality(permits.runs) THEN count(*)
                ELSE coalesce(sum(durable.weight_of(staying.run, permits.gate)), 0)
            END
        FROM unnest(permits.runs) AS staying (run)
        WHERE staying.run NOT IN (SELECT gone.id FROM gone)
    )
-- end
    WHERE gate = ANY (ARRAY(SELECT unnest(expired.gates) FROM expired))
      AND owner = ANY (ARRAY(SELECT locked_runs.claim_id FROM locked_runs))
      AND owner <> ALL (ARRAY(SELECT ended.claim_id FROM ended))
      AND EXISTS (
          SELECT
          FROM unnest(permits.runs) AS named (run)
          WHERE named.run IN (SELECT gone.id FROM gone)
      )
    RETURNING gate
), over AS (
    SELECT reclaimed.id, reclaimed.state, reclaimed.strict, NULL::text[] AS gives
    FROM reclaimed
    WHERE durable.is_ended(reclaimed.state)
      AND reclaimed.strict IS NOT NULL
    UNION ALL
    SELECT runs.id, runs.state, runs.strict, runs.gives
    FROM durable.runs
    WHERE runs.id = ANY (ARRAY(
            SELECT unnest(expired.run_ids)
            FROM expired
            WHERE expired.strict
              AND expired.claim_id IN (SELECT ended.claim_id FROM ended)
        ))
      AND runs.claim_id = ANY (ARRAY(SELECT ended.claim_id FROM ended))
      AND durable.is_ended(runs.state)
), finished AS (
-- block: end-permits of over
    DELETE FROM durable.permits
    USING over
    WHERE over.strict IS NOT NULL
      AND permits.gate = ANY (over.strict)
      AND permits.owner = over.id
      AND (permits.until = durable.until_finished() OR over.state <> durable.dead())
    RETURNING permits.gate
-- end
), given_back AS (
-- block: give-back of over
    DELETE FROM durable.permits
    USING (
        SELECT
            split_part(over.gives[given.place], ':', 1)::bigint AS gate,
            split_part(over.gives[given.place], ':', 2)::uuid AS owner
        FROM over
        CROSS JOIN generate_subscripts(over.gives, 1) AS given (place)
        WHERE over.state = durable.succeeded()
    ) back
    WHERE permits.gate = back.gate
      AND permits.owner = back.owner
      AND permits.until = durable.until_expires()
    RETURNING permits.gate
-- end
), touched AS (
    SELECT released.gate FROM released
    UNION ALL
    SELECT reduced.gate FROM reduced
    UNION ALL
    SELECT finished.gate FROM finished
    UNION ALL
    SELECT given_back.gate FROM given_back
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
    RETURNING line
)
SELECT
    counted.now,
    counted.leases,
    counted.stuck,
    counted.freed,
    crashed.id,
    crashed.lane,
    crashed.queue,
    crashed.job,
    crashed.worker,
    crashed.state,
    crashed.crash_count
FROM (
    SELECT
        now()::timestamptz AS now,
        count(*)::int AS leases,
        coalesce(
            array_agg(expired.claim_id) FILTER (
                WHERE expired.claim_id NOT IN (SELECT examined.claim_id FROM examined)
            ),
            '{}'
        )::uuid[] AS stuck,
        ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
    FROM expired
) counted
LEFT JOIN crashed ON true;

-- name: ReclaimableLeases :many
-- After ReclaimRuns has failed: the leases that it may have read, to be tried one by one.
-- Index: leases_expiry, or a scan of beats and leases_beat. Locks: none.
SELECT leases.claim_id
FROM durable.leases
LEFT JOIN durable.beats ON beats.id = leases.beat
WHERE coalesce(leases.expires_at, beats.expires_at)
        <= least(now(), sqlc.narg(horizon)::timestamptz)
  AND leases.claim_id <> ALL (@aside::uuid[])
ORDER BY coalesce(leases.expires_at, beats.expires_at)
LIMIT @most;

-- name: ReclaimableRuns :many
-- The runs of one lease, to be tried in parts. Index: leases_pkey, runs_pkey. Locks: none.
SELECT runs.id
FROM durable.runs
WHERE runs.id = ANY (ARRAY(
        SELECT unnest(leases.run_ids)
        FROM durable.leases
        WHERE leases.claim_id = @claim_id
    ))
  AND runs.claim_id = @claim_id
  AND runs.state = durable.running()
  AND runs.id <> ALL (@aside::uuid[])
LIMIT @most_runs;

-- name: ClampLeases :execrows
-- A lease that expires later than twice its duration was granted before the database's
-- clock was set back; it gets one duration from now.
-- Index: leases_expiry from end to end; there are few leases, and it runs once a minute.
-- Locks: the leases with SKIP LOCKED. Idempotent: a repeat finds no rows.
UPDATE durable.leases
SET expires_at = now() + duration * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(
    SELECT late.claim_id
    FROM durable.leases late
    WHERE late.expires_at > now() + 2 * late.duration * interval '1 microsecond'
    FOR UPDATE SKIP LOCKED
));

-- name: ClampBeats :exec
-- ClampLeases for beats, of which there are few.
UPDATE durable.beats
SET expires_at = now() + duration * interval '1 microsecond'
WHERE id = ANY (ARRAY(
    SELECT late.id
    FROM durable.beats late
    WHERE late.expires_at > now() + 2 * late.duration * interval '1 microsecond'
    FOR UPDATE SKIP LOCKED
));

-- name: PruneBeats :exec
-- Beats of processes that have gone, an hour after the last lease could have followed
-- them. Index: beats, leases_beat. Locks: the beats with SKIP LOCKED.
-- Idempotent: a repeat finds no rows.
DELETE FROM durable.beats
WHERE id = ANY (ARRAY(
    SELECT old.id
    FROM durable.beats old
    WHERE old.expires_at < now() - interval '1 hour'
      AND NOT EXISTS (
          SELECT
          FROM durable.leases
          WHERE leases.beat = old.id
      )
    FOR UPDATE SKIP LOCKED
));

-- name: FreeLeases :exec
-- Leases whose beat was deleted by hand expire by themselves, one duration from now.
-- Index: leases_beat from end to end, beats_pkey. Locks: the leases with SKIP LOCKED.
-- Idempotent: a repeat finds no rows.
UPDATE durable.leases
SET beat = NULL,
    expires_at = now() + duration * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(
    SELECT lost.claim_id
    FROM durable.leases lost
    WHERE lost.beat IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM durable.beats
          WHERE beats.id = lost.beat
      )
    FOR UPDATE SKIP LOCKED
));
