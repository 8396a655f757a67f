-- name: SweepDue :one
-- sweep_pkey, runs_pkey from the position on, cancels. No locks: the first
-- question of a sweep, and mostly the only one. True when a sweep is under way,
-- a pass is due (see SweepPlace), a run behind the position has come to the age of so many
-- microseconds (null: none ever does), or there are cancel requests to look at.
-- No row: true. The first id of an instant is its milliseconds and zeros.
SELECT coalesce((
    SELECT s.block >= 0 OR s.sweeper IS NOT NULL OR s.began_at > now() OR s.began_at <= now() - interval '1 microsecond'
               * least((@least::bigint) + (@step::bigint) * (pg_relation_size('durable.runs'::regclass) / current_setting('block_size')::int / (@blocks_a_step::bigint)), (@every::bigint))
           OR EXISTS (SELECT FROM durable.cancels)
           OR EXISTS (SELECT FROM durable.runs r WHERE r.id > s.position AND r.id <
                (lpad(to_hex(greatest((extract(epoch FROM now()) * 1000)::bigint - sqlc.narg(age)::bigint / 1000, 0)), 12, '0') || '00000000000000000000')::uuid)
    FROM durable.sweep s WHERE s.only_row), true)::boolean AS due;

-- name: BeginSweep :exec
-- sweep_pkey. Under the advisory lock. Twice: the row is there.
INSERT INTO durable.sweep DEFAULT VALUES ON CONFLICT DO NOTHING;

-- name: SweepPlace :one
-- One row by primary key, no locks: read under the advisory lock. A pass is due
-- when the last one began long enough ago, or in the future: least and a step
-- for every so many blocks of the table, in microseconds, at most every. It is
-- somebody else's while that one has made a step not long ago.
SELECT s.position, s.block,
       coalesce(s.sweeper <> @sweeper::uuid AND s.swept_at > now() - (@tenure::bigint) * interval '1 microsecond' AND s.swept_at <= now(), false)::boolean AS taken,
       (s.began_at > now() OR s.began_at <= now() - interval '1 microsecond'
           * least((@least::bigint) + (@step::bigint) * (pg_relation_size('durable.runs'::regclass) / current_setting('block_size')::int / (@blocks_a_step::bigint)), (@every::bigint)))::boolean AS due,
       (pg_relation_size('durable.runs'::regclass) / current_setting('block_size')::int)::bigint AS blocks
FROM durable.sweep s WHERE s.only_row;

-- name: OwnRetentions :many
-- Reads jobs, a small table; unique index lanes (queue, job, priority) has no
-- use here, and lanes are few. No locks.
SELECT l.id, j.retention FROM durable.jobs j JOIN durable.lanes l ON l.job = j.name WHERE j.retention <> 0;

-- name: SweepAhead :many
-- runs_pkey from the position on. No locks. What is over is told by what the
-- row itself says: own maps a lane to the retention of its job, in
-- microseconds; dead and ended are those of the others.
SELECT r.id, coalesce(r.state IN (2, 4, 5) AND
-- block: over
       r.finished_at < now() - coalesce((@own::jsonb ->> (abs(r.lane)::text))::bigint,
           CASE r.state WHEN 4 THEN @dead::bigint ELSE @ended::bigint END) * interval '1 microsecond'
-- end
       , false)::boolean AS over
FROM durable.runs r WHERE r.id > @position AND r.id < @frontier ORDER BY r.id LIMIT @most;

-- name: SweepBlocks :many
-- A range of the table's own blocks, whatever the ids in it. No locks. Finds
-- what is over, what is pending without its row of ready (ready_order), and
-- what is running under a claim that has no lease. A claim's
-- lease and its runs are committed together, and a lease that has gone does not
-- come back: where one snapshot shows the run and no lease, its worker is not
-- coming back either, as long as the run's claim is still this one.
SELECT r.id, r.claim_id, ((r.ctid::text::point)[0])::bigint AS block, r.state
FROM durable.runs r
WHERE r.ctid >= format('(%s,0)', @from_block::bigint)::tid AND r.ctid < format('(%s,0)', @to_block::bigint)::tid
  AND (r.state IN (2, 4, 5) AND
-- block: over
       r.finished_at < now() - coalesce((@own::jsonb ->> (abs(r.lane)::text))::bigint,
           CASE r.state WHEN 4 THEN @dead::bigint ELSE @ended::bigint END) * interval '1 microsecond'
-- end
       OR r.state = 1 AND NOT EXISTS (SELECT FROM durable.leases l WHERE l.claim_id = r.claim_id)
       OR r.state = 0 AND NOT EXISTS (SELECT FROM durable.ready y WHERE y.lane = r.lane AND y.due_at = r.due_at AND y.run_id = r.id))
LIMIT @most;

-- name: MendReady :execrows
-- runs_pkey, ready_order. Locks the runs that are still pending with SKIP LOCKED,
-- and gives each the row of ready that it has not, as the row that was locked
-- says. Twice: the row is there.
INSERT INTO durable.ready (lane, due_at, run_id)
SELECT r.lane, r.due_at, r.id
FROM durable.runs r
WHERE r.id = ANY (@ids::uuid[]) AND r.state = 0
FOR NO KEY UPDATE SKIP LOCKED
ON CONFLICT DO NOTHING;

-- name: SweepRuns :one
-- runs_pkey, unique_keys_pkey. Locks the keys that name the runs, then the
-- runs, both with SKIP LOCKED: nobody is waited for, so the order of locks
-- cannot matter, and what somebody holds is left to the next pass. A run whose
-- key is held to a later time stays, and so does one whose key is locked: it is
-- being enqueued again. Whether a run is over is asked again of the row as it is
-- when it is locked: a retry that came first has its way. Twice: they are gone.
WITH o AS MATERIALIZED (
    SELECT r.id, l.job, r.key FROM durable.runs r JOIN durable.lanes l ON l.id = abs(r.lane)
    WHERE r.id = ANY (@ids::uuid[]) AND r.key IS NOT NULL
), f AS MATERIALIZED (
    SELECT o.id, x.job, x.key FROM o, LATERAL (
        SELECT u.job, u.key FROM durable.unique_keys u
        WHERE u.job = o.job AND u.key = o.key AND u.run_id = o.id AND (u.held_to IS NULL OR u.held_to <= now()) FOR UPDATE SKIP LOCKED) x
), k AS MATERIALIZED (
    SELECT o.id FROM o JOIN durable.unique_keys u ON u.job = o.job AND u.key = o.key AND u.run_id = o.id WHERE o.id NOT IN (SELECT f.id FROM f)
), r AS MATERIALIZED (
    SELECT r.id FROM durable.runs r
    WHERE r.id = ANY (@ids::uuid[]) AND r.id <> ALL (ARRAY(SELECT k.id FROM k)) AND r.state IN (2, 4, 5)
      AND
-- block: over
       r.finished_at < now() - coalesce((@own::jsonb ->> (abs(r.lane)::text))::bigint,
          CASE r.state WHEN 4 THEN @dead::bigint ELSE @ended::bigint END) * interval '1 microsecond'
-- end
    FOR UPDATE SKIP LOCKED
), d AS (
    DELETE FROM durable.runs WHERE id = ANY (ARRAY(SELECT r.id FROM r)) RETURNING id
), u AS (
    DELETE FROM durable.unique_keys u USING f WHERE u.job = f.job AND u.key = f.key AND u.run_id = f.id AND f.id = ANY (ARRAY(SELECT r.id FROM r))
)
SELECT count(*) FROM d;

-- name: SweepRests :exec
-- attempts_pkey, problems_pkey, progress_pkey, and runs_pkey to leave alone what
-- SweepRuns, before it in the same transaction, has left. A statement of its own
-- and so a later snapshot: nothing can be added to a run that is gone. Twice: no
-- rows.
WITH g AS MATERIALIZED (
    SELECT i.id FROM (SELECT unnest(@ids::uuid[]) AS id) i WHERE NOT EXISTS (SELECT FROM durable.runs r WHERE r.id = i.id)
), a AS (
    DELETE FROM durable.attempts WHERE run_id = ANY (ARRAY(SELECT g.id FROM g))
), p AS (
    DELETE FROM durable.problems WHERE run_id = ANY (ARRAY(SELECT g.id FROM g))
)
DELETE FROM durable.progress WHERE run_id = ANY (ARRAY(SELECT g.id FROM g));

-- name: ReturnRuns :many
-- runs_pkey. Locks the runs with SKIP LOCKED. claims maps an id to the claim it
-- was found under without a lease; a run that has another by now is left alone.
-- As a hand-back: pending and due now, the attempt refunded, no crash counted.
-- One whose crash policy is dead ends dead, and another that is to be cancelled is.
-- Twice: the claim has gone.
WITH r AS MATERIALIZED (
    SELECT r.id FROM durable.runs r
    WHERE r.id = ANY (@ids::uuid[]) AND r.state = 1 AND coalesce(r.claim_id::text, '') = @claims::jsonb ->> (r.id::text)
    FOR NO KEY UPDATE SKIP LOCKED
), u AS (
    UPDATE durable.runs SET claim_id = NULL, attempt = greatest(attempt - 1, 0), due_at = now(),
        state = CASE WHEN on_crash = 1 THEN 4 WHEN cancel IS NOT NULL THEN 5 ELSE 0 END,
        finished_at = CASE WHEN cancel IS NOT NULL OR on_crash = 1 THEN now() END
    WHERE id = ANY (ARRAY(SELECT r.id FROM r)) AND state = 1
    RETURNING id, lane, due_at, state, crash_count, worker, cancel
), q AS (
-- block: enter-line of u
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT u.lane, u.due_at, u.id FROM u
-- end
    WHERE u.state = 0
), p AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT u.id, now(), u.state, CASE WHEN u.state = 5 THEN u.cancel ELSE @stranded_dead::text END, abs(u.lane) FROM u WHERE u.state <> 0
    ON CONFLICT DO NOTHING
)
SELECT u.id, u.lane, l.queue, l.job, coalesce((SELECT o.name FROM durable.workers o WHERE o.id = u.worker), '?')::text AS worker, u.state, u.crash_count
FROM u JOIN durable.lanes l ON l.id = abs(u.lane);

-- name: MoveSweep :exec
-- sweep_pkey. Under the advisory lock. Twice: the same row.
UPDATE durable.sweep SET position = @position, block = @block, began_at = CASE WHEN @begins::boolean THEN now() ELSE began_at END,
    sweeper = @sweeper, swept_at = now() WHERE only_row;

-- name: PruneCancels :exec
-- cancels_pkey, all of it, and leases_pkey; there are few. Locks with SKIP
-- LOCKED. A request is written while its claim has a lease, so one without was
-- too late. Twice: no rows.
DELETE FROM durable.cancels WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM durable.cancels c WHERE NOT EXISTS (SELECT FROM durable.leases l WHERE l.claim_id = c.claim_id) FOR UPDATE SKIP LOCKED));

-- name: PruneWorkers :exec
-- workers_pkey, all of it, and leases; both are small. Locks with SKIP LOCKED.
-- Workers that have not declared themselves for so many microseconds, by when
-- no run that they executed is left, and that hold nothing. Twice: no rows.
DELETE FROM durable.workers WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM durable.workers w
    WHERE w.seen_at < now() - (@after::bigint) * interval '1 microsecond' AND NOT EXISTS (SELECT FROM durable.leases l WHERE l.worker = w.id)
    FOR UPDATE SKIP LOCKED));
