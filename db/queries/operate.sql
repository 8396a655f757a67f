-- name: Operable :many
-- What decides which of the statements below is tried; each checks again.
-- Index: runs_pkey, lanes_pkey, problems_pkey, edges_pkey. Locks: none.
SELECT
    runs.id,
    runs.state,
    runs.lane,
    runs.due_at,
    coalesce(runs.key, '')::text AS key,
    (runs.key IS NOT NULL)::boolean AS keyed,
    lanes.job,
    (runs.gates IS NOT NULL)::boolean AS limited,
    EXISTS (
        SELECT
        FROM durable.problems
        WHERE problems.run_id = runs.id
          AND problems.acknowledged_at IS NOT NULL
    )::boolean AS acknowledged,
    (
        runs.state = durable.pending()
        AND runs.started_at IS NULL
        AND EXISTS (
            SELECT
            FROM durable.edges
            WHERE edges.waiter = runs.id
              AND edges.name = ''
              AND NOT edges.met
        )
    )::boolean AS held
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
WHERE runs.id = ANY (@ids::uuid[]);

-- name: AcknowledgeRuns :many
-- Takes dead runs out of the problems that are open.
-- Index: problems_pkey. Locks: the problems, with SKIP LOCKED. One that is retried meanwhile
-- is not found.
-- Idempotent: a repeat changes nothing.
WITH locked_problems AS MATERIALIZED (
    SELECT run_id
    FROM durable.problems
    WHERE run_id = ANY (@ids::uuid[])
      AND state = durable.dead()
      AND acknowledged_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
), acknowledged AS (
    UPDATE durable.problems
    SET acknowledged_at = now(),
        acknowledged_by = @actor::text
    WHERE run_id = ANY (ARRAY(SELECT locked_problems.run_id FROM locked_problems))
      AND acknowledged_at IS NULL
    RETURNING run_id
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT
        @actor::text, 'run', acknowledged.run_id::text, 'acknowledge',
        nullif(@detail::text, '')::json
    FROM acknowledged
    WHERE @singly::boolean
)
SELECT acknowledged.run_id
FROM acknowledged;

-- name: CancelPending :many
-- Cancels pending runs and returns their ids. A transaction that has the row of ready
-- has a pending run.
-- Index: ready_order, one probe for each run, then runs_pkey. Locks: each run together
-- with its row of ready; skips the pairs of which a claim, another operator or a
-- user's transaction has locked either.
-- Idempotent: a repeat finds no row of ready.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT locked.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@dues::timestamptz[]) AS due_at,
                unnest(@ids::uuid[]) AS run_id
        ) asked,
        LATERAL (
            SELECT waiting.ctid
            FROM durable.ready waiting
            JOIN durable.runs pending ON pending.id = waiting.run_id
            WHERE waiting.lane = asked.lane
              AND waiting.due_at = asked.due_at
              AND waiting.run_id = asked.run_id
            FOR NO KEY UPDATE OF waiting, pending SKIP LOCKED
        ) locked
    ))
    RETURNING run_id
), cancelled AS (
    UPDATE durable.runs
    SET state = durable.cancelled(),
        finished_at = now()
    WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
      AND state = durable.pending()
    RETURNING id, lane
), reported AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT cancelled.id, now(), durable.cancelled(), @reason::text, abs(cancelled.lane)
    FROM cancelled
    ON CONFLICT DO NOTHING
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT
        @actor::text, 'run', cancelled.id::text, 'cancel', nullif(@detail::text, '')::json
    FROM cancelled
    WHERE @singly::boolean
)
SELECT cancelled.id
FROM cancelled;

-- name: CancelWaiting :many
-- CancelPending for limited runs, which wait in the lines of their gates. No gate is locked:
-- a turn without a waiter is harmless. A run that wanted more than one place of one gate may
-- have been in the way of others: its gate has a turn. Freed are the lines of such turns,
-- and of those for places that it has freed.
-- Index: runs_pkey, waiting_order, one probe for each gate of a run. Locks and idempotence:
-- as CancelPending.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.waiting
    WHERE ctid = ANY (ARRAY(
        SELECT locked.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@dues::timestamptz[]) AS due_at,
                unnest(@ids::uuid[]) AS run_id
        ) asked,
        LATERAL (
            SELECT place.ctid
            FROM durable.runs pending
            JOIN durable.waiting place ON place.gate = ANY (
                    pending.gates || durable.all_permits()::bigint
                )
                AND place.run_id = pending.id
            WHERE pending.id = asked.run_id
              AND place.lane = asked.lane
              AND place.due_at = asked.due_at
              AND place.run_id = asked.run_id
            FOR NO KEY UPDATE OF place, pending SKIP LOCKED
        ) locked
    ))
    RETURNING run_id, gate, more
), cancelled AS (
    UPDATE durable.runs
    SET state = durable.cancelled(),
        finished_at = now()
    WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
      AND state = durable.pending()
    RETURNING id, lane, state, strict
), finished AS (
-- block: end-permits of cancelled
    DELETE FROM durable.permits
    USING cancelled
    WHERE cancelled.strict IS NOT NULL
      AND permits.gate = ANY (cancelled.strict)
      AND permits.owner = cancelled.id
      AND (permits.until = durable.until_finished() OR cancelled.state <> durable.dead())
    RETURNING permits.gate
-- end
), touched AS (
    SELECT finished.gate FROM finished
    UNION ALL
    SELECT taken.gate FROM taken WHERE taken.more AND taken.gate <> durable.all_permits()
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
    RETURNING line
), reported AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT cancelled.id, now(), durable.cancelled(), @reason::text, abs(cancelled.lane)
    FROM cancelled
    ON CONFLICT DO NOTHING
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT
        @actor::text, 'run', cancelled.id::text, 'cancel', nullif(@detail::text, '')::json
    FROM cancelled
    WHERE @singly::boolean
)
SELECT
    cancelled.id,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM cancelled;

-- name: RequestCancels :many
-- Requests the cancellation of running runs; cancels only notifies their worker.
-- Index: runs_pkey. Locks: the running runs, with SKIP LOCKED.
-- Idempotent: a repeat keeps the first reason and records nothing more.
WITH locked_runs AS MATERIALIZED (
    SELECT id, claim_id, (cancel IS NULL) AS fresh
    FROM durable.runs
    WHERE id = ANY (@ids::uuid[])
      AND state = durable.running()
    FOR NO KEY UPDATE SKIP LOCKED
), requested AS (
    UPDATE durable.runs
    SET cancel = @reason::text
    WHERE id = ANY (ARRAY(
            SELECT locked_runs.id
            FROM locked_runs
            WHERE locked_runs.fresh
        ))
      AND state = durable.running()
    RETURNING id
), notified AS (
    INSERT INTO durable.cancels (claim_id, run_id)
    SELECT locked_runs.claim_id, locked_runs.id
    FROM locked_runs
    WHERE locked_runs.fresh
    ON CONFLICT DO NOTHING
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', requested.id::text, 'cancel', nullif(@detail::text, '')::json
    FROM requested
    WHERE @singly::boolean
)
SELECT locked_runs.id, locked_runs.fresh::boolean AS fresh
FROM locked_runs;

-- name: RetryRuns :many
-- Makes dead and cancelled runs pending again; those with a unique key only when keyed
-- says that the caller has locked it. A dependent that was cancelled before its conditions were
-- met waits for them again.
-- Index: runs_pkey, problems_pkey, edges_pkey. Locks: the runs, with SKIP LOCKED.
-- Idempotent: a repeat finds them pending.
WITH locked_runs AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = ANY (@ids::uuid[])
      AND state IN (durable.dead(), durable.cancelled())
      AND (key IS NULL OR @keyed::boolean)
    FOR NO KEY UPDATE SKIP LOCKED
), retried AS (
    UPDATE durable.runs
    SET state = durable.pending(),
        due_at = CASE
            WHEN started_at IS NULL AND EXISTS (
                SELECT
                FROM durable.edges
                WHERE edges.waiter = runs.id
                  AND edges.name = ''
                  AND NOT edges.met
            ) THEN now() + (@longest::bigint) * interval '1 microsecond'
            ELSE now()
        END,
        attempt = 0,
        crash_count = 0,
        lane = abs(lane),
        claim_id = NULL,
        cancel = NULL,
        expires_at = NULL,
        finished_at = NULL
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
      AND state IN (durable.dead(), durable.cancelled())
    RETURNING id, lane, due_at, gates, limits, strict
), listed AS (
-- block: read-lines of retried
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(abs(own.gate)), retried.lane
    FROM retried
    CROSS JOIN LATERAL pg_catalog.unnest(retried.gates) AS own (gate)
    WHERE NOT EXISTS (
        SELECT
        FROM durable.limit_lanes known
        WHERE known.limit_id = durable.limit_of(abs(own.gate))
          AND known.lane = retried.lane
    )
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
-- end
), queued AS (
-- block: enter-line of retried
    INSERT INTO durable.ready (lane, due_at, run_id)
    SELECT retried.lane, retried.due_at, retried.id
    FROM retried
-- end
    WHERE retried.gates IS NULL
), lined AS (
-- block: enter-waiting of retried
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(retried.id, retried.gates, retried.strict),
        retried.lane,
        retried.due_at,
        retried.id,
        durable.is_more(retried.gates, retried.limits)
    FROM retried
-- end
    WHERE retried.gates IS NOT NULL
    RETURNING gate, lane, due_at
), announced AS (
-- block: announce of lined
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT lined.lane, lined.due_at, lined.gate
    FROM lined
-- end
), resolved AS (
    DELETE FROM durable.problems
    WHERE run_id = ANY (ARRAY(SELECT retried.id FROM retried))
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', retried.id::text, 'retry', nullif(@detail::text, '')::json
    FROM retried
    WHERE @singly::boolean
)
SELECT retried.id
FROM retried;

-- name: MeetAll :many
-- After LockNoticed in its transaction, for pending runs that it has locked: all their conditions
-- count as met. The runs that had one which was not.
-- Index: edges_pkey. Locks: edges of runs that the transaction has locked.
-- Idempotent: a repeat finds them met.
WITH met AS (
    UPDATE durable.edges
    SET met = true
    WHERE waiter = ANY (@ids::uuid[])
      AND name = ''
      AND NOT met
    RETURNING waiter
), released AS MATERIALIZED (
    SELECT DISTINCT met.waiter AS id FROM met
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', released.id::text, 'release', nullif(@detail::text, '')::json
    FROM released
    WHERE @singly::boolean
)
SELECT released.id::uuid AS id
FROM released;

-- name: LookAtRetried :exec
-- After RetryRuns in its transaction: has the dependents among its runs looked at that wait for
-- their conditions again.
-- Index: runs_pkey. Locks: what it inserts. Idempotent: a notice too many is harmless.
INSERT INTO durable.notices (run_id, kind)
SELECT runs.id, durable.notice_look()
FROM durable.runs
WHERE runs.id = ANY (@ids::uuid[])
  AND runs.state = durable.pending()
  AND runs.due_at > now();

-- name: CountRetried :exec
-- After RetryRuns in its transaction: the schedules of runs that are pending again count
-- them as unfinished.
-- Index: runs_pkey, schedules_pkey. Locks: the schedules; waits, within the lock_timeout,
-- for a materializer that evaluates them.
-- Idempotent: each run counts once.
UPDATE durable.schedules
SET unfinished = ARRAY(
    SELECT counted.id
    FROM (
        SELECT unnest(schedules.unfinished) AS id
        UNION
        SELECT unnest(retried.ids)
    ) counted
    ORDER BY counted.id
)
FROM (
    SELECT runs.schedule, array_agg(runs.id) AS ids
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
      AND runs.schedule IS NOT NULL
      AND runs.state = durable.pending()
    GROUP BY runs.schedule
) retried
WHERE schedules.id = retried.schedule;

-- name: DeletePending :many
-- CancelPending, but the runs are deleted, and after them all that belongs to them (SweepRests);
-- keyed as in RetryRuns.
-- Index, locks: as CancelPending. Idempotent: a repeat finds no row of ready.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT locked.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@dues::timestamptz[]) AS due_at,
                unnest(@ids::uuid[]) AS run_id
        ) asked,
        LATERAL (
            SELECT waiting.ctid
            FROM durable.ready waiting
            JOIN durable.runs pending ON pending.id = waiting.run_id
            WHERE waiting.lane = asked.lane
              AND waiting.due_at = asked.due_at
              AND waiting.run_id = asked.run_id
              AND (pending.key IS NULL OR @keyed::boolean)
            FOR UPDATE OF waiting, pending SKIP LOCKED
        ) locked
    ))
    RETURNING run_id
), deleted AS (
    DELETE FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
      AND state = durable.pending()
    RETURNING id
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', deleted.id::text, 'delete', nullif(@detail::text, '')::json
    FROM deleted
    WHERE @singly::boolean
)
SELECT deleted.id
FROM deleted;

-- name: DeleteWaiting :many
-- DeletePending for limited runs, as CancelWaiting is CancelPending.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.waiting
    WHERE ctid = ANY (ARRAY(
        SELECT locked.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@dues::timestamptz[]) AS due_at,
                unnest(@ids::uuid[]) AS run_id
        ) asked,
        LATERAL (
            SELECT place.ctid
            FROM durable.runs pending
            JOIN durable.waiting place ON place.gate = ANY (
                    pending.gates || durable.all_permits()::bigint
                )
                AND place.run_id = pending.id
            WHERE pending.id = asked.run_id
              AND place.lane = asked.lane
              AND place.due_at = asked.due_at
              AND place.run_id = asked.run_id
              AND (pending.key IS NULL OR @keyed::boolean)
            FOR UPDATE OF place, pending SKIP LOCKED
        ) locked
    ))
    RETURNING run_id, gate, more
), deleted AS (
    DELETE FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT taken.run_id FROM taken))
      AND state = durable.pending()
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
), touched AS (
    SELECT finished.gate FROM finished
    UNION ALL
    SELECT taken.gate FROM taken WHERE taken.more AND taken.gate <> durable.all_permits()
), freed AS (
-- block: free of touched
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT touched.gate FROM touched) freed
-- end
    RETURNING line
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', deleted.id::text, 'delete', nullif(@detail::text, '')::json
    FROM deleted
    WHERE @singly::boolean
)
SELECT
    deleted.id,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM deleted;

-- name: DeleteFinished :many
-- Deletes finished runs, and after them all that belongs to them (SweepRests); keyed as in
-- RetryRuns.
-- Freed are the lines of turns for places that a dead run has kept.
-- Index: runs_pkey. Locks: the runs, with SKIP LOCKED. Idempotent: a repeat finds no rows.
WITH locked_runs AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = ANY (@ids::uuid[])
      AND state IN (durable.succeeded(), durable.dead(), durable.cancelled())
      AND (key IS NULL OR @keyed::boolean)
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
      AND state IN (durable.succeeded(), durable.dead(), durable.cancelled())
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
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'run', deleted.id::text, 'delete', nullif(@detail::text, '')::json
    FROM deleted
    WHERE @singly::boolean
)
SELECT
    deleted.id,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM deleted;

-- name: LockKey :one
-- Locks a unique key, and inserts its row when no run has the key.
-- Index: unique_keys_pkey. Locks: the row; waits for its holder within the lock_timeout,
-- while the transaction has locked nothing else yet.
-- Idempotent: a repeat returns the same row.
INSERT INTO durable.unique_keys (job, key, run_id, latest)
VALUES (@job, @key, @run_id, @run_id)
ON CONFLICT (job, key) DO UPDATE
SET run_id = unique_keys.run_id
RETURNING run_id, coalesce(held_to > now(), false)::boolean AS held;

-- name: LockKeyOf :exec
-- Locks a unique key; no row: no run has the key.
-- Index: unique_keys_pkey. Locks: the row; waits as LockKey does.
SELECT
FROM durable.unique_keys
WHERE job = @job
  AND key = @key
FOR UPDATE;

-- name: Unfinished :one
-- Index: runs_pkey. Locks: none; the row of the key is locked, so a transaction that
-- would make the run unfinished again waits.
SELECT EXISTS (
    SELECT
    FROM durable.runs
    WHERE id = @id
      AND durable.is_unfinished(state)
)::boolean AS unfinished;

-- name: TakeKey :exec
-- Index: unique_keys_pkey. Locks: a row that LockKey has locked.
UPDATE durable.unique_keys
SET run_id = @run_id,
    latest = @run_id,
    held_to = NULL
WHERE job = @job
  AND key = @key
  AND run_id <> @run_id;

-- name: ReleaseKey :exec
-- Index: unique_keys_pkey. Locks: a row that LockKeyOf has locked.
-- Idempotent: a repeat deletes no row.
DELETE FROM durable.unique_keys
WHERE job = @job
  AND key = @key
  AND run_id = @run_id;

-- name: CancelRequests :many
-- The cancel requests for running runs of these claims.
-- Index: cancels_pkey, then runs_pkey. Locks: none.
SELECT cancels.claim_id, cancels.run_id, runs.cancel::text AS reason
FROM durable.cancels
JOIN durable.runs ON runs.id = cancels.run_id
WHERE cancels.claim_id = ANY (@claims::uuid[])
  AND runs.claim_id = cancels.claim_id
  AND runs.state = durable.running()
  AND runs.cancel IS NOT NULL
ORDER BY cancels.claim_id, cancels.run_id;

-- name: KeepOccurrence :exec
-- Copies the occurrence of a run to the one that is created after it.
-- Index: runs_pkey. Locks: a run that the same transaction has stored.
-- Idempotent: a repeat stores the same.
UPDATE durable.runs
SET occurs_at = original.occurs_at
FROM durable.runs original
WHERE durable.runs.id = @made
  AND original.id = @original
  AND original.occurs_at IS NOT NULL;

-- name: AuditChange :exec
-- In the transaction of the change.
INSERT INTO durable.audit (actor, kind, subject, action, detail)
VALUES (@actor, @kind, @subject, @action, nullif(@detail::text, '')::json);

-- name: AuditReveal :many
-- Of a run that exists. Index: runs_pkey. Locks: only what it inserts.
INSERT INTO durable.audit (actor, kind, subject, action, detail)
SELECT @actor::text, @kind::text, runs.id::text, @action::text, nullif(@detail::text, '')::json
FROM durable.runs
WHERE runs.id = @id::uuid
RETURNING audit.id;

-- name: AuditSessionEnd :exec
-- Index: audit_subject. Locks: only what it inserts. Idempotent: a repeat finds the row; two
-- at the same moment, which do not see each other's, store two, which say the same.
INSERT INTO durable.audit (actor, kind, subject, action)
SELECT @actor::text, @kind::text, @session::text, @action::text
WHERE NOT EXISTS (
    SELECT 1
    FROM durable.audit ended
    WHERE ended.kind = @kind::text
      AND ended.subject = @session::text
);

-- name: AuditBulk :exec
-- Adds to the row of a bulk change, or creates it. In the transaction of the change.
-- Index: audit_subject. Locks: the row, which only steps of the same bulk change lock; of
-- two steps at the same moment, which do not see each other's, each may create a row.
WITH added AS (
    UPDATE durable.audit
    SET runs = audit.runs + @changed::bigint
    WHERE audit.id = (
            SELECT first_step.id
            FROM durable.audit first_step
            WHERE first_step.kind = 'bulk'
              AND first_step.subject = @bulk::text
            ORDER BY first_step.id
            LIMIT 1
        )
    RETURNING audit.id
)
INSERT INTO durable.audit (actor, kind, subject, action, detail, runs)
SELECT
    @actor::text, 'bulk', @bulk::text, @action::text, nullif(@detail::text, '')::json,
    @changed::bigint
WHERE NOT EXISTS (SELECT FROM added);

-- name: FloorOfChanges :many
-- Index: audit_pkey backwards, so many entries and no more. Locks: none.
SELECT id
FROM durable.audit
WHERE id < @before
ORDER BY id DESC
OFFSET @skip
LIMIT 1;

-- name: Changes :many
-- Index: audit_pkey backwards from before to from_id, which the caller has chosen so that
-- it is not far; an empty text filters nothing. Locks: none.
SELECT
    id, at, actor, kind, subject, action,
    coalesce(detail::text, '')::text AS detail,
    coalesce(runs, 0)::bigint AS runs
FROM durable.audit
WHERE id < @before
  AND id >= @from_id
  AND (@kind::text = '' OR kind = @kind)
  AND (@subject::text = '' OR subject = @subject)
  AND (@actor::text = '' OR actor = @actor)
  AND (@action::text = '' OR action = @action)
  AND at >= @since
ORDER BY id DESC
LIMIT @most;

-- name: ChangesOf :many
-- Index: audit_subject backwards. Locks: none.
SELECT
    id, at, actor, kind, subject, action,
    coalesce(detail::text, '')::text AS detail,
    coalesce(runs, 0)::bigint AS runs
FROM durable.audit
WHERE id < @before
  AND id >= @from_id
  AND kind = @kind
  AND subject = @subject
  AND (@actor::text = '' OR actor = @actor)
  AND (@action::text = '' OR action = @action)
  AND at >= @since
ORDER BY id DESC
LIMIT @most;
