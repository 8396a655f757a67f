-- name: ExpiredLease :one
-- The head of leases_expiry; beats, which has a row per process, with a probe of
-- leases_beat for each that has expired or is about to. No locks: the first question of
-- every reclaim, and mostly the only one. held tells whether there is any lease, soon
-- whether one has expired or will within so many microseconds.
SELECT now()::timestamptz AS now, (l.expires_at IS NOT NULL OR EXISTS (SELECT FROM durable.leases f WHERE f.beat IS NOT NULL))::boolean AS held,
       (coalesce(l.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz), false)
        OR EXISTS (SELECT FROM durable.beats b WHERE b.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz)
                   AND EXISTS (SELECT FROM durable.leases f WHERE f.beat = b.id)))::boolean AS expired,
       (coalesce(l.expires_at <= now() + (@ahead::bigint) * interval '1 microsecond', false)
        OR EXISTS (SELECT FROM durable.beats b WHERE b.expires_at <= now() + (@ahead::bigint) * interval '1 microsecond'
                   AND EXISTS (SELECT FROM durable.leases f WHERE f.beat = b.id)))::boolean AS soon
FROM (SELECT min(expires_at) AS expires_at FROM durable.leases) l;

-- name: EndBeats :exec
-- beats, leases_beat, leases_pkey. Before ReclaimRuns in its transaction: leases
-- that follow an expired beat expire by themselves, when it did; no more than
-- can be reclaimed, none of those set aside, and just the one that is named, if one is.
-- Locks the beats and then the leases, both with SKIP LOCKED:
-- a process that renews now keeps its own. The row of the beat stays, so that
-- nobody can follow one that is gone, and is written: one that waits to renew it
-- in an older snapshot (repeatable read) has to begin anew. Twice: others, or none.
WITH b AS MATERIALIZED (
    SELECT a.id, a.expires_at FROM durable.beats a
    WHERE a.expires_at <= least(now(), sqlc.narg(horizon)::timestamptz)
      AND EXISTS (SELECT FROM durable.leases f WHERE f.beat = a.id AND f.claim_id <> ALL (@aside::uuid[])
                  AND (sqlc.narg(just)::uuid IS NULL OR f.claim_id = sqlc.narg(just)::uuid))
    ORDER BY a.expires_at LIMIT @most FOR UPDATE SKIP LOCKED
), w AS (
    UPDATE durable.beats SET before = before WHERE id = ANY (ARRAY(SELECT b.id FROM b))
)
UPDATE durable.leases SET beat = NULL, expires_at = (SELECT b.expires_at FROM b WHERE b.id = leases.beat)
WHERE claim_id = ANY (ARRAY(
    SELECT l.claim_id FROM durable.leases l
    WHERE l.beat = ANY (ARRAY(SELECT b.id FROM b)) AND l.claim_id <> ALL (@aside::uuid[])
      AND (sqlc.narg(just)::uuid IS NULL OR l.claim_id = sqlc.narg(just)::uuid)
    LIMIT @most FOR UPDATE SKIP LOCKED))
  AND beat = ANY (ARRAY(SELECT b.id FROM b));

-- name: ReclaimRuns :many
-- leases_expiry, then runs_pkey. Locks expired leases, then their runs, both
-- with SKIP LOCKED: a run that a user's transaction holds is left, and its
-- lease row then stays and is tried again; a lease of which nothing could be
-- taken is returned as stuck, for the next look to pass over. So does the lease of which
-- more runs are left than are taken at a time, or one that is set aside; runs may name
-- those to take, and just the lease. A lease that stays although a part of it was taken
-- (part) gets the duration zero: no renewal extends it, so that its worker learns that it
-- has lost it. A run that was asked to be cancelled is, as the row that was locked says.
-- Twice: nothing has expired, or the next runs.
WITH x AS MATERIALIZED (
    SELECT claim_id, alone, run_ids FROM durable.leases
    WHERE expires_at <= least(now(), sqlc.narg(horizon)::timestamptz) AND claim_id <> ALL (@stuck::uuid[])
      AND (sqlc.narg(just)::uuid IS NULL OR claim_id = sqlc.narg(just)::uuid)
    ORDER BY expires_at LIMIT @most FOR UPDATE SKIP LOCKED
), r AS MATERIALIZED (
    SELECT id, claim_id FROM durable.runs
    WHERE id = ANY (ARRAY(SELECT unnest(x.run_ids) FROM x)) AND claim_id = ANY (ARRAY(SELECT x.claim_id FROM x)) AND state = 1
      AND id <> ALL (@aside::uuid[]) AND (sqlc.narg(runs)::uuid[] IS NULL OR id = ANY (sqlc.narg(runs)::uuid[]))
    LIMIT @most_runs FOR NO KEY UPDATE SKIP LOCKED
), u AS (
    UPDATE durable.runs SET
        crash_count = least(crash_count + 1, @most_crashes::int), attempt = attempt - 1, claim_id = NULL, due_at = now(),
        state = CASE WHEN on_crash = 1 OR crash_count + 1 >= @max_crashes::int AND (SELECT x.alone FROM x WHERE x.claim_id = runs.claim_id) THEN 4
                     WHEN cancel IS NOT NULL THEN 5 ELSE 0 END,
        finished_at = CASE WHEN cancel IS NOT NULL OR on_crash = 1 OR crash_count + 1 >= @max_crashes::int AND (SELECT x.alone FROM x WHERE x.claim_id = runs.claim_id) THEN now() END,
        lane = CASE WHEN crash_count + 1 >= @isolation::int THEN -abs(lane) ELSE lane END
    WHERE id = ANY (ARRAY(SELECT r.id FROM r)) AND claim_id = ANY (ARRAY(SELECT x.claim_id FROM x)) AND state = 1
    RETURNING id, lane, due_at, state, crash_count, attempt, fence, started_at, worker, on_crash, cancel
), w AS MATERIALIZED (
    SELECT u.id, u.lane, u.due_at, u.state, u.crash_count, u.attempt, u.fence, u.started_at, u.on_crash, u.cancel, l.queue, l.job,
           coalesce((SELECT o.name FROM durable.workers o WHERE o.id = u.worker), '?')::text AS worker
    FROM u JOIN durable.lanes l ON l.id = abs(u.lane)
), q AS (
-- block: enter-line of u
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT u.lane, u.due_at, u.id FROM u
-- end
    WHERE u.state = 0
), a AS (
    INSERT INTO durable.attempts (run_id, fence, number, outcome, worker, started_at, ended_at, error)
    SELECT w.id, w.fence, w.attempt + 1, 7, w.worker, coalesce(w.started_at, now()), now(),
           format(@lease_expired::text, w.worker, w.crash_count)
    FROM w ON CONFLICT DO NOTHING
), p AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT w.id, now(), w.state, CASE WHEN w.state = 5 THEN w.cancel
                                WHEN w.on_crash = 1 THEN @crashed_dead::text
                                ELSE format(@crashed_alone::text, w.crash_count) END, abs(w.lane)
    FROM w WHERE w.state >= 4 ON CONFLICT DO NOTHING
), g AS (
    DELETE FROM durable.leases WHERE claim_id = ANY (ARRAY(SELECT x.claim_id FROM x)) AND NOT EXISTS (
        SELECT FROM durable.runs b
        WHERE b.id = ANY (leases.run_ids) AND b.claim_id = leases.claim_id AND b.state = 1 AND b.id NOT IN (SELECT r.id FROM r))
    RETURNING claim_id
), part AS (
    UPDATE durable.leases SET duration = 0
    WHERE claim_id = ANY (ARRAY(SELECT r.claim_id FROM r)) AND claim_id <> ALL (ARRAY(SELECT g.claim_id FROM g))
), y AS (
    SELECT r.claim_id FROM r UNION SELECT g.claim_id FROM g
)
SELECT c.now, c.leases, c.stuck, w.id, w.lane, w.queue, w.job, w.worker, w.state, w.crash_count
FROM (SELECT now()::timestamptz AS now, count(*)::int AS leases,
             coalesce(array_agg(x.claim_id) FILTER (WHERE x.claim_id NOT IN (SELECT y.claim_id FROM y)), '{}')::uuid[] AS stuck FROM x) c LEFT JOIN w ON true;

-- name: ReclaimableLeases :many
-- leases_expiry, or a scan of beats and leases_beat. No locks: after ReclaimRuns has
-- failed, the leases that it may have looked at, to be tried one by one.
SELECT l.claim_id FROM durable.leases l LEFT JOIN durable.beats b ON b.id = l.beat
WHERE coalesce(l.expires_at, b.expires_at) <= least(now(), sqlc.narg(horizon)::timestamptz) AND l.claim_id <> ALL (@aside::uuid[])
ORDER BY coalesce(l.expires_at, b.expires_at) LIMIT @most;

-- name: ReclaimableRuns :many
-- leases_pkey, runs_pkey. No locks: the runs of one lease, to be tried in parts.
SELECT r.id FROM durable.runs r
WHERE r.id = ANY (ARRAY(SELECT unnest(l.run_ids) FROM durable.leases l WHERE l.claim_id = @claim_id)) AND r.claim_id = @claim_id AND r.state = 1
  AND r.id <> ALL (@aside::uuid[])
LIMIT @most_runs;

-- name: ClampLeases :execrows
-- leases_expiry from end to end; there are few leases, and it runs once a
-- minute. Locks with SKIP LOCKED. A lease that expires later than twice its
-- duration was granted before the database's clock was set back; it gets one
-- duration from now. Twice: no rows.
UPDATE durable.leases SET expires_at = now() + duration * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.leases l
    WHERE l.expires_at > now() + 2 * l.duration * interval '1 microsecond' FOR UPDATE SKIP LOCKED));

-- name: ClampBeats :exec
-- ClampLeases for beats, of which there are few.
UPDATE durable.beats SET expires_at = now() + duration * interval '1 microsecond'
WHERE id = ANY (ARRAY(SELECT b.id FROM durable.beats b
    WHERE b.expires_at > now() + 2 * b.duration * interval '1 microsecond' FOR UPDATE SKIP LOCKED));

-- name: PruneBeats :exec
-- beats, leases_beat. Locks with SKIP LOCKED. Beats of processes that have gone,
-- an hour after the last lease could have followed them. Twice: no rows.
DELETE FROM durable.beats WHERE id = ANY (ARRAY(SELECT b.id FROM durable.beats b
    WHERE b.expires_at < now() - interval '1 hour' AND NOT EXISTS (SELECT FROM durable.leases l WHERE l.beat = b.id) FOR UPDATE SKIP LOCKED));

-- name: FreeLeases :exec
-- leases_beat from end to end, beats_pkey. Locks with SKIP LOCKED. Leases whose
-- beat somebody has deleted by hand expire by themselves, one duration from
-- now. Twice: no rows.
UPDATE durable.leases SET beat = NULL, expires_at = now() + duration * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.leases l
    WHERE l.beat IS NOT NULL AND NOT EXISTS (SELECT FROM durable.beats b WHERE b.id = l.beat) FOR UPDATE SKIP LOCKED));
