-- Crash policies: 0 retry, 1 dead.

-- name: SweepDue :one
-- The first question of a sweep, and mostly the only one. True when a sweep is under way,
-- a pass is due (see SweepPlace), a run behind the position has come to the age of so many
-- microseconds (null: none ever does), or there are cancel requests to prune. No row:
-- true. The first id of an instant is its milliseconds and zeros.
-- Index: sweep_pkey, runs_pkey from the position on, cancels. Locks: none.
SELECT coalesce(
    (
        SELECT
            sweep.block >= 0
            OR sweep.sweeper IS NOT NULL
            OR sweep.began_at > now()
            OR sweep.began_at <= now() - interval '1 microsecond' * least(
                (@least::bigint) + (@step::bigint) * (
                    pg_relation_size('durable.runs'::regclass)
                    / current_setting('block_size')::int
                    / (@blocks_a_step::bigint)
                ),
                (@every::bigint)
            )
            OR EXISTS (SELECT FROM durable.cancels)
            OR EXISTS (
                SELECT
                FROM durable.runs
                WHERE runs.id > sweep.position
                  AND runs.id < (
                      lpad(
                          to_hex(greatest(
                              (extract(epoch FROM now()) * 1000)::bigint
                              - sqlc.narg(age)::bigint / 1000,
                              0
                          )),
                          12,
                          '0'
                      ) || '00000000000000000000'
                  )::uuid
            )
        FROM durable.sweep
        WHERE sweep.only_row
    ),
    true
)::boolean AS due;

-- name: BeginSweep :exec
-- Index: sweep_pkey. Under the advisory lock. Idempotent: a repeat finds the row.
INSERT INTO durable.sweep DEFAULT VALUES
ON CONFLICT DO NOTHING;

-- name: SweepPlace :one
-- A pass is due when the last one began long enough ago, or in the future: least and a
-- step for every so many blocks of the table, in microseconds, at most every. The sweep
-- belongs to another process while that one has finished a step not long ago.
-- Index: sweep_pkey, one row. Locks: none; read under the advisory lock.
SELECT
    sweep.position,
    sweep.block,
    coalesce(
        sweep.sweeper <> @sweeper::uuid
            AND sweep.swept_at > now() - (@tenure::bigint) * interval '1 microsecond'
            AND sweep.swept_at <= now(),
        false
    )::boolean AS taken,
    (
        sweep.began_at > now()
        OR sweep.began_at <= now() - interval '1 microsecond' * least(
            (@least::bigint) + (@step::bigint) * (
                pg_relation_size('durable.runs'::regclass)
                / current_setting('block_size')::int
                / (@blocks_a_step::bigint)
            ),
            (@every::bigint)
        )
    )::boolean AS due,
    (
        pg_relation_size('durable.runs'::regclass) / current_setting('block_size')::int
    )::bigint AS blocks
FROM durable.sweep
WHERE sweep.only_row;

-- name: OwnRetentions :many
-- Index: none; reads jobs and lanes, small tables. Locks: none.
SELECT lanes.id, jobs.retention
FROM durable.jobs
JOIN durable.lanes ON lanes.job = jobs.name
WHERE jobs.retention <> 0;

-- name: SweepAhead :many
-- Runs in the order of their ids; over says whether the retention of one has passed, as
-- its own row shows: own maps a lane to the retention of its job, in microseconds; dead
-- and ended are those of the others.
-- Index: runs_pkey from the position on. Locks: none.
SELECT
    runs.id,
    coalesce(
        runs.state IN (durable.succeeded(), durable.dead(), durable.cancelled())
-- block: over
            AND runs.finished_at < now() - coalesce(
                (@own::jsonb ->> (abs(runs.lane)::text))::bigint,
                CASE runs.state WHEN durable.dead() THEN @dead::bigint ELSE @ended::bigint END
            ) * interval '1 microsecond'
-- end
        ,
        false
    )::boolean AS over
FROM durable.runs
WHERE runs.id > @position
  AND runs.id < @frontier
ORDER BY runs.id
LIMIT @most;

-- name: SweepBlocks :many
-- Finds, in a range of the table's own blocks and whatever the ids in it, the runs whose
-- retention has passed, those that are pending without their row of ready or waiting
-- (ready_order, waiting_order), or with a line that workers do not read (limit_lanes_pkey),
-- and those that are running under a claim that has no lease. A claim's lease and its
-- runs are committed together, and a lease that has gone does not come back: where one
-- snapshot shows the run and no lease, its worker is not coming back either, as long as
-- the run's claim is still this one.
-- Index: none; a scan of a TID range. Locks: none.
SELECT
    runs.id,
    runs.claim_id,
    ((runs.ctid::text::point)[0])::bigint AS block,
    runs.state
FROM durable.runs
WHERE runs.ctid >= format('(%s,0)', @from_block::bigint)::tid
  AND runs.ctid < format('(%s,0)', @to_block::bigint)::tid
  AND (
      runs.state IN (durable.succeeded(), durable.dead(), durable.cancelled())
-- block: over
          AND runs.finished_at < now() - coalesce(
              (@own::jsonb ->> (abs(runs.lane)::text))::bigint,
              CASE runs.state WHEN durable.dead() THEN @dead::bigint ELSE @ended::bigint END
          ) * interval '1 microsecond'
-- end
      OR runs.state = durable.running()
          AND NOT EXISTS (
              SELECT
              FROM durable.leases
              WHERE leases.claim_id = runs.claim_id
          )
      OR runs.state = durable.pending()
          AND NOT EXISTS (
              SELECT
              FROM durable.ready
              WHERE ready.lane = runs.lane
                AND ready.due_at = runs.due_at
                AND ready.run_id = runs.id
          )
          AND NOT (
              runs.gates IS NOT NULL
              AND EXISTS (
                  SELECT
                  FROM durable.waiting
                  WHERE waiting.gate = ANY (runs.gates || durable.all_permits()::bigint)
                    AND waiting.lane = runs.lane
                    AND waiting.due_at = runs.due_at
                    AND waiting.run_id = runs.id
              )
          )
      OR runs.state = durable.pending()
          AND runs.gates IS NOT NULL
          AND EXISTS (
              SELECT
              FROM unnest(runs.gates) AS own (gate)
              WHERE NOT EXISTS (
                  SELECT
                  FROM durable.limit_lanes
                  WHERE limit_lanes.limit_id = durable.limit_of(abs(own.gate))
                    AND limit_lanes.lane = runs.lane
              )
          )
  )
LIMIT @most;

-- name: MendReady :execrows
-- Gives pending runs the row of ready that they lack, as the locked row of the run says.
-- Index: runs_pkey, ready_order. Locks: the runs, with SKIP LOCKED.
-- Idempotent: a repeat finds the row.
INSERT INTO durable.ready (lane, due_at, run_id)
SELECT runs.lane, runs.due_at, runs.id
FROM durable.runs
WHERE runs.id = ANY (@ids::uuid[])
  AND runs.state = durable.pending()
  AND runs.gates IS NULL
FOR NO KEY UPDATE SKIP LOCKED
ON CONFLICT DO NOTHING;

-- name: MendWaiting :execrows
-- MendReady for limited runs, as new: in the line of the first gate of each.
-- Index: runs_pkey, waiting_order. Locks and idempotence: as MendReady.
WITH mended AS MATERIALIZED (
    SELECT runs.id, runs.lane, runs.due_at, runs.gates, runs.limits, runs.strict
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.state = durable.pending()
      AND runs.gates IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM durable.waiting
          WHERE waiting.gate = ANY (runs.gates || durable.all_permits()::bigint)
            AND waiting.lane = runs.lane
            AND waiting.due_at = runs.due_at
            AND waiting.run_id = runs.id
      )
    FOR NO KEY UPDATE SKIP LOCKED
), listed AS (
-- block: read-lines of mended
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), mended.lane
    FROM mended
    CROSS JOIN LATERAL pg_catalog.unnest(mended.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = mended.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), lined AS (
-- block: enter-waiting of mended
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(mended.id, mended.gates, mended.strict),
        mended.lane,
        mended.due_at,
        mended.id,
        durable.is_more(mended.gates, mended.limits)
    FROM mended
-- end
    ON CONFLICT DO NOTHING
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
)
SELECT lined.gate
FROM lined;

-- name: MendLines :execrows
-- Has workers read the lines of limited runs, which they do not where a row of limit_lanes is
-- missing, and leaves a turn for each run in the line where it waits.
-- Index: runs_pkey, limit_lanes_pkey, waiting_order. Locks: the runs, with SKIP LOCKED.
-- Idempotent: a repeat finds the rows.
WITH unread AS MATERIALIZED (
    SELECT runs.id, runs.lane, runs.due_at, runs.gates
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.state = durable.pending()
      AND runs.gates IS NOT NULL
      AND EXISTS (
          SELECT
          FROM unnest(runs.gates) AS own (gate)
          WHERE NOT EXISTS (
              SELECT
              FROM durable.limit_lanes
              WHERE limit_lanes.limit_id = durable.limit_of(abs(own.gate))
                AND limit_lanes.lane = runs.lane
          )
      )
    FOR NO KEY UPDATE SKIP LOCKED
), listed AS (
-- block: read-lines of unread
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), unread.lane
    FROM unread
    CROSS JOIN LATERAL pg_catalog.unnest(unread.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = unread.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), announced AS (
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT waiting.lane, waiting.due_at, waiting.gate
    FROM unread
    JOIN durable.waiting ON waiting.gate = ANY (unread.gates || durable.all_permits()::bigint)
        AND waiting.lane = unread.lane
        AND waiting.due_at = unread.due_at
        AND waiting.run_id = unread.id
)
SELECT unread.id
FROM unread;

-- name: SweepRuns :one
-- Deletes runs whose retention has passed, with their keys. A run whose key is held to a
-- later time stays, and so does one whose key is locked: it is being enqueued again.
-- Whether its retention has passed is checked again on the locked row: a retry that came
-- first wins. Freed are the lines of turns for places that a dead run has kept.
-- Index: runs_pkey, unique_keys_pkey, members_pkey. Locks: the keys that name the runs, then the
-- runs, both with SKIP LOCKED: it waits for no transaction, so the order of locks cannot
-- matter, and what others have locked is left to the next pass.
-- Idempotent: a repeat finds them gone.
WITH keyed AS MATERIALIZED (
    SELECT runs.id, lanes.job, runs.key
    FROM durable.runs
    JOIN durable.lanes ON lanes.id = abs(runs.lane)
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.key IS NOT NULL
), free_keys AS MATERIALIZED (
    SELECT keyed.id, locked.job, locked.key
    FROM keyed,
    LATERAL (
        SELECT unique_keys.job, unique_keys.key
        FROM durable.unique_keys
        WHERE unique_keys.job = keyed.job
          AND unique_keys.key = keyed.key
          AND unique_keys.run_id = keyed.id
          AND (unique_keys.held_to IS NULL OR unique_keys.held_to <= now())
        FOR UPDATE SKIP LOCKED
    ) locked
), kept AS MATERIALIZED (
    SELECT keyed.id
    FROM keyed
    JOIN durable.unique_keys ON unique_keys.job = keyed.job
        AND unique_keys.key = keyed.key
        AND unique_keys.run_id = keyed.id
    WHERE keyed.id NOT IN (SELECT free_keys.id FROM free_keys)
), locked_runs AS MATERIALIZED (
    SELECT runs.id
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.id <> ALL (ARRAY(SELECT kept.id FROM kept))
      AND runs.state IN (durable.succeeded(), durable.dead(), durable.cancelled())
-- block: over
      AND runs.finished_at < now() - coalesce(
          (@own::jsonb ->> (abs(runs.lane)::text))::bigint,
          CASE runs.state WHEN durable.dead() THEN @dead::bigint ELSE @ended::bigint END
      ) * interval '1 microsecond'
-- end
      AND NOT (
          runs.links IS NOT NULL
          AND (
              EXISTS (SELECT FROM durable.members WHERE members.run_id = runs.id)
              OR runs.state <> durable.dead()
              AND EXISTS (
                  SELECT
                  FROM durable.edges
                  JOIN durable.runs waiters ON waiters.id = edges.waiter
                  WHERE edges.source = runs.id
                    AND durable.is_unfinished(waiters.state)
              )
          )
      )
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
    RETURNING id, durable.cancelled() AS state, strict
), finished AS (
-- block: end-permits of deleted
    DELETE FROM durable.permits
    USING deleted
    WHERE deleted.strict IS NOT NULL
      AND permits.gate = ANY (deleted.strict)
      AND permits.owner = deleted.id
      AND (permits.until = durable.until_finished() OR deleted.state <> durable.dead())
    RETURNING permits.gate
-- end
), freed AS (
-- block: free of finished
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT finished.gate FROM finished) freed
-- end
    RETURNING line
), keys_deleted AS (
    DELETE FROM durable.unique_keys
    USING free_keys
    WHERE unique_keys.job = free_keys.job
      AND unique_keys.key = free_keys.key
      AND unique_keys.run_id = free_keys.id
      AND free_keys.id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
)
SELECT
    count(*) AS deleted,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM deleted;

-- name: SweepRests :exec
-- Deletes what belongs to the runs that SweepRuns, or an operator's delete, before it in the same
-- transaction, has deleted. A statement of its own and so a later snapshot: nothing can be added
-- to a run that is gone.
-- Index: attempts_pkey, problems_pkey, progress_pkey, steps_pkey, inputs_pkey, edges_pkey, and
-- runs_pkey to leave alone what that has left. Idempotent: a repeat finds no rows.
WITH gone AS MATERIALIZED (
    SELECT swept.id
    FROM (SELECT unnest(@ids::uuid[]) AS id) swept
    WHERE NOT EXISTS (
        SELECT
        FROM durable.runs
        WHERE runs.id = swept.id
    )
), attempts_deleted AS (
    DELETE FROM durable.attempts
    WHERE run_id = ANY (ARRAY(SELECT gone.id FROM gone))
), problems_deleted AS (
    DELETE FROM durable.problems
    WHERE run_id = ANY (ARRAY(SELECT gone.id FROM gone))
), steps_deleted AS (
    DELETE FROM durable.steps
    WHERE run_id = ANY (ARRAY(SELECT gone.id FROM gone))
), inputs_deleted AS (
    DELETE FROM durable.inputs
    WHERE run_id = ANY (ARRAY(SELECT gone.id FROM gone))
), edges_deleted AS (
    DELETE FROM durable.edges
    WHERE waiter = ANY (ARRAY(SELECT gone.id FROM gone))
)
DELETE FROM durable.progress
WHERE run_id = ANY (ARRAY(SELECT gone.id FROM gone));

-- name: ReturnRuns :many
-- Requeues runs that were running under a claim without a lease. As a hand-back: pending
-- and due now, the attempt refunded, no crash counted. One whose crash policy is dead
-- ends dead, and another whose cancellation was requested ends cancelled. claims maps an
-- id to the claim it was found under; a run that has another by now is left alone. Freed
-- are the lines of turns for places that it has freed.
-- Index: runs_pkey. Locks: the runs, with SKIP LOCKED.
-- Idempotent: a repeat finds the claim gone.
WITH locked_runs AS MATERIALIZED (
    SELECT runs.id, runs.claim_id, runs.gates
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.state = durable.running()
      AND coalesce(runs.claim_id::text, '') = @claims::jsonb ->> (runs.id::text)
    FOR NO KEY UPDATE SKIP LOCKED
), returned AS (
    UPDATE durable.runs
    SET claim_id = NULL,
        attempt = greatest(attempt - 1, 0),
        due_at = now(),
        state = CASE
            WHEN on_crash <> durable.crash_retry() THEN durable.dead()
-- block: released
            WHEN cancel IS NOT NULL THEN durable.cancelled()
            ELSE durable.pending()
-- end
        END,
        finished_at = CASE
            WHEN cancel IS NOT NULL OR on_crash <> durable.crash_retry() THEN now()
        END
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
      AND state = durable.running()
    RETURNING
        id, lane, due_at, state, crash_count, worker, cancel, gates, limits, strict
), listed AS (
-- block: read-lines of returned
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), returned.lane
    FROM returned
    CROSS JOIN LATERAL pg_catalog.unnest(returned.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = returned.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), queued AS (
-- block: enter-line of returned
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT returned.lane, returned.due_at, returned.id
    FROM returned
-- end
    WHERE returned.state = durable.pending()
      AND returned.gates IS NULL
), lined AS (
-- block: enter-waiting of returned
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(returned.id, returned.gates, returned.strict),
        returned.lane,
        returned.due_at,
        returned.id,
        durable.is_more(returned.gates, returned.limits)
    FROM returned
-- end
    WHERE returned.state = durable.pending()
      AND returned.gates IS NOT NULL
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
), over AS (
    SELECT returned.id, returned.state, returned.strict
    FROM returned
    WHERE durable.is_ended(returned.state)
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
), gone AS (
    SELECT locked_runs.id
    FROM locked_runs
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
    WHERE gate = ANY (ARRAY(SELECT unnest(locked_runs.gates) FROM locked_runs))
      AND owner = ANY (ARRAY(SELECT locked_runs.claim_id FROM locked_runs))
      AND EXISTS (
          SELECT
          FROM unnest(permits.runs) AS named (run)
          WHERE named.run IN (SELECT gone.id FROM gone)
      )
    RETURNING gate
), touched AS (
    SELECT finished.gate FROM finished
    UNION ALL
    SELECT reduced.gate FROM reduced
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
    RETURNING line
), reported AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT
        returned.id,
        now(),
        returned.state,
        CASE
            WHEN returned.state = durable.cancelled() THEN returned.cancel
            ELSE @stranded_dead::text
        END,
        abs(returned.lane)
    FROM returned
    WHERE returned.state <> durable.pending()
    ON CONFLICT DO NOTHING
)
SELECT
    returned.id,
    returned.lane,
    lanes.queue,
    lanes.job,
    coalesce(durable.worker_name(returned.worker), '?')::text AS worker,
    returned.state,
    returned.crash_count,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM returned
JOIN durable.lanes ON lanes.id = abs(returned.lane);

-- name: MoveSweep :exec
-- Index: sweep_pkey. Under the advisory lock. Idempotent: a repeat writes the same row.
UPDATE durable.sweep
SET position = @position,
    block = @block,
    began_at = CASE WHEN @begins::boolean THEN now() ELSE began_at END,
    sweeper = @sweeper,
    swept_at = now()
WHERE only_row;

-- name: PruneCancels :exec
-- A request is written while its claim has a lease, so one without was too late.
-- Index: cancels_pkey, all of it, and leases_pkey; there are few. Locks: the rows with
-- SKIP LOCKED. Idempotent: a repeat finds no rows.
DELETE FROM durable.cancels
WHERE ctid = ANY (ARRAY(
    SELECT late.ctid
    FROM durable.cancels late
    WHERE NOT EXISTS (
        SELECT
        FROM durable.leases
        WHERE leases.claim_id = late.claim_id
    )
    FOR UPDATE SKIP LOCKED
));

-- name: PruneWorkers :exec
-- Workers that have not declared themselves for so many microseconds, by when no run that
-- they executed is left, and that have no lease.
-- Index: workers_pkey, all of it, and leases; both are small. Locks: the rows with SKIP
-- LOCKED. Idempotent: a repeat finds no rows.
DELETE FROM durable.workers
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM durable.workers old
    WHERE old.seen_at < now() - (@after::bigint) * interval '1 microsecond'
      AND NOT EXISTS (
          SELECT
          FROM durable.leases
          WHERE leases.worker = old.id
      )
    FOR UPDATE SKIP LOCKED
));

-- name: PrunePermits :many
-- A net that must stay empty: permits of claims without a lease and without a run that is
-- running under them, and of runs that have ended; and what a claim's last release has left
-- without a place. Of what is older than a minute, so many.
-- Index: permits_pkey from end to end, leases_pkey, runs_pkey. Locks: the permits, with SKIP
-- LOCKED. Idempotent: a repeat finds no rows.
WITH released AS (
    DELETE FROM durable.permits
    WHERE ctid = ANY (ARRAY(
        SELECT stale.ctid
        FROM durable.permits stale
        WHERE stale.at < now() - interval '1 minute'
          AND CASE stale.until
              WHEN durable.until_settled() THEN NOT EXISTS (
                      SELECT
                      FROM durable.leases
                      WHERE leases.claim_id = stale.owner
                  )
                  AND NOT EXISTS (
                      SELECT
                      FROM durable.runs
                      WHERE runs.id = ANY (stale.runs)
                        AND runs.claim_id = stale.owner
                        AND runs.state = durable.running()
                  )
              WHEN durable.until_expires() THEN stale.expires_at < now() - interval '1 hour'
              ELSE NOT EXISTS (
                  SELECT
                  FROM durable.runs
                  WHERE runs.id = stale.owner
                    AND (
                        durable.is_unfinished(runs.state)
                        OR stale.until = durable.until_finished_or_revived()
                        AND runs.state = durable.dead()
                    )
              )
          END
        LIMIT @most
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING gate
), freed AS (
-- block: free of released
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT released.gate FROM released) freed
-- end
)
SELECT released.gate
FROM released;

-- name: PruneAudit :exec
-- The oldest changes, as far as they are older than so many microseconds.
-- Index: audit_pkey, its first entries. Locks: the rows with SKIP LOCKED. Idempotent: a
-- repeat finds no rows, or later ones that are old enough too.
DELETE FROM durable.audit
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM (
        SELECT first_rows.id
        FROM durable.audit first_rows
        ORDER BY first_rows.id
        LIMIT @most
    ) oldest
    JOIN durable.audit old ON old.id = oldest.id
    WHERE old.at < now() - (@after::bigint) * interval '1 microsecond'
    FOR UPDATE OF old SKIP LOCKED
));

-- name: LockUnwanted :exec
-- Locks gates that have turns which have been due for so many microseconds, and for which no
-- run waits, so many; and leaves them in admission.gates. It creates a gate that does not exist.
-- A worker takes turns from the lines that it reads: one for a run that was cancelled on a
-- queue that no worker serves any more stays, and keeps its gate from being pruned.
-- Index: turns_order, skipped along the lines and then the oldest @examined turns of each;
-- waiting_order. Locks: the gates, with SKIP LOCKED. An insert waits, in the order of the
-- gates, for another transaction that creates the same gate. Idempotent: a repeat finds their
-- turns deleted.
WITH RECURSIVE lines (line) AS (
    (
        SELECT turns.line
        FROM durable.turns
        ORDER BY turns.line
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT turns.line
        FROM durable.turns
        WHERE turns.line > lines.line
        ORDER BY turns.line
        LIMIT 1
    )
    FROM lines
    WHERE lines.line IS NOT NULL
), unwanted AS MATERIALIZED (
    SELECT DISTINCT old.gate
    FROM lines
    CROSS JOIN LATERAL (
        SELECT turns.gate
        FROM durable.turns
        WHERE turns.line = lines.line
          AND turns.due_at < now() - (@age::bigint) * interval '1 microsecond'
        ORDER BY turns.due_at, turns.gate
        LIMIT @examined
    ) old
    WHERE NOT EXISTS (SELECT FROM durable.waiting WHERE waiting.gate = old.gate)
      AND NOT EXISTS (SELECT FROM durable.rounds WHERE rounds.gate = old.gate)
    LIMIT @most
), locked AS MATERIALIZED (
    SELECT gates.gate
    FROM durable.gates
    WHERE gates.gate = ANY (ARRAY(SELECT unwanted.gate FROM unwanted))
    FOR UPDATE SKIP LOCKED
), made AS (
    INSERT INTO durable.gates (gate)
    SELECT unwanted.gate
    FROM unwanted
    WHERE NOT EXISTS (
        SELECT
        FROM durable.gates
        WHERE gates.gate = unwanted.gate
    )
    ORDER BY unwanted.gate
    ON CONFLICT DO NOTHING
    RETURNING gate
), ours AS (
    SELECT locked.gate FROM locked
    UNION ALL
    SELECT made.gate FROM made
)
SELECT pg_catalog.set_config(
    'admission.gates',
    coalesce(array_agg(ours.gate), '{}')::text,
    true
)
FROM ours;

-- name: PruneTurns :exec
-- Deletes the turns of the gates in admission.gates for which no run waits. Because they are
-- locked, and were before this statement's snapshot, no admission moves a run here whose
-- place such a turn announces; a run that is enqueued has a turn of its own, which this
-- statement does not see if it does not see the run.
-- Index: turns_gate, waiting_order, rounds_order. Locks: what it deletes. Idempotent: a
-- repeat finds none.
DELETE FROM durable.turns
WHERE gate = ANY (
        nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
    )
  AND NOT EXISTS (
      SELECT
      FROM durable.waiting
      WHERE waiting.gate = turns.gate
  )
  AND NOT EXISTS (
      SELECT
      FROM durable.rounds
      WHERE rounds.gate = turns.gate
  );

-- name: PruneGates :exec
-- Gates that have nothing to remember: no run waits, nothing is held, no penalty, and no
-- start that a limit still counts. So many.
-- Index: gates_pkey, then one probe each of waiting_order, rounds_order, rounds_pkey,
-- permits_pkey, turns_gate, refunds_gate. Locks: the gates, with SKIP LOCKED: an admission
-- that finds one locked puts its turn back. Idempotent: a repeat finds no rows.
DELETE FROM durable.gates
WHERE gate = ANY (ARRAY(
    SELECT old.gate
    FROM durable.gates old
    JOIN durable.limits ON limits.id = durable.limit_of(abs(old.gate))
    CROSS JOIN (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now) moment
    WHERE (old.not_before IS NULL OR old.not_before < now())
      AND coalesce(old.tat, 0) / 1000 + limits.period < moment.now
      AND coalesce(old.last_at, 0) + limits.period < moment.now
      AND coalesce(old.bucket_at[cardinality(old.bucket_at)], 0) + limits.period < moment.now
      AND NOT EXISTS (SELECT FROM durable.waiting WHERE waiting.gate = old.gate)
      AND NOT EXISTS (SELECT FROM durable.rounds WHERE rounds.gate = old.gate)
      AND NOT EXISTS (SELECT FROM durable.rounds WHERE rounds.line = old.gate)
      AND NOT EXISTS (SELECT FROM durable.permits WHERE permits.gate = old.gate)
      AND NOT EXISTS (SELECT FROM durable.turns WHERE turns.gate = old.gate)
      AND NOT EXISTS (SELECT FROM durable.refunds WHERE refunds.gate = old.gate)
    LIMIT @most
    FOR UPDATE OF old SKIP LOCKED
));

-- name: PruneKept :exec
-- Places that were kept so many microseconds ago, for lanes that nothing asked about since.
-- A scan of kept, which is almost empty. Locks: the rows, with SKIP LOCKED.
DELETE FROM durable.kept
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM durable.kept old
    WHERE old.expires_at < now() - (@age::bigint) * interval '1 microsecond'
    LIMIT @most
    FOR UPDATE SKIP LOCKED
));
