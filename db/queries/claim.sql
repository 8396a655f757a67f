-- name: Heads :many
-- Unique index lanes (queue, job, priority), then one probe of ready_order per
-- lane. No locks. marks maps a lane to the instant from which it is looked at,
-- others are looked at from their beginning: while an old snapshot is held, a
-- probe without a bound steps over the entry of every run claimed since then.
SELECT l.id::int AS lane, l.queue, l.job, l.priority, h.due_at, now()::timestamptz AS now
FROM durable.lanes l
LEFT JOIN LATERAL (
    SELECT r.due_at
    FROM durable.ready r
    WHERE r.lane = l.id AND r.due_at >= coalesce((@marks::jsonb ->> (l.id::text))::timestamptz, '-infinity')
    ORDER BY r.due_at, r.run_id
    LIMIT 1) h ON true
WHERE l.queue = ANY (@queues::text[]) AND l.job = ANY (@jobs::text[]) AND NOT l.paused
UNION ALL
SELECT (-l.id)::int, l.queue, l.job, l.priority, h.due_at, now()
FROM durable.lanes l
CROSS JOIN LATERAL (SELECT r.due_at FROM durable.ready r WHERE r.lane = -l.id ORDER BY r.due_at, r.run_id LIMIT 1) h
WHERE l.queue = ANY (@queues::text[]) AND l.job = ANY (@jobs::text[]) AND NOT l.paused;

-- name: ClaimRuns :many
-- ready_order per step, then runs_pkey. Locks and deletes rows of ready with
-- SKIP LOCKED, inserts one lease, then updates the runs, which nothing of ours
-- locks while they are pending (see ClaimFreeRuns). array() is evaluated once and cannot
-- take more than the limit; LIMIT may refer to a column outside a LATERAL, and
-- the join is lazy: no more rows are locked than are taken or passed over.
-- Twice with one claim_id: leases_pkey refuses it (23505) and nothing changes.
-- A row of ready whose run is not pending, which only a change by hand can
-- leave, goes and starts nothing: dealt, the rows that went, is then more than
-- the rows that come back.
-- $1 claim_id, $2 worker, $3 duration in microseconds, $4 alone; the steps: $5
-- lanes, $6 due from, $7 skip, $8 take; $9 the most runs. (sqlc stumbles over
-- names here.)
WITH d AS MATERIALIZED (
    DELETE FROM durable.ready WHERE ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM (SELECT unnest($5::int[]) lane, unnest($6::timestamptz[]) mark, unnest($7::int[]) skip, unnest($8::int[]) take) s,
             LATERAL (SELECT r.ctid FROM durable.ready r
                      WHERE r.lane = s.lane AND r.due_at >= s.mark AND r.due_at <= now()
                      ORDER BY r.due_at, r.run_id OFFSET s.skip LIMIT s.take FOR UPDATE SKIP LOCKED) x
        WHERE NOT EXISTS (SELECT FROM durable.lanes l WHERE l.id = abs(s.lane) AND l.paused)
        LIMIT $9))
    RETURNING run_id
), n AS (
    INSERT INTO durable.leases (claim_id, worker, acquired_at, expires_at, duration, alone, run_ids)
    SELECT $1::uuid, $2::int, now(), now() + $3::bigint * interval '1 microsecond', $3::bigint, $4::boolean, array_agg(d.run_id)
    FROM d HAVING count(*) > 0
)
UPDATE durable.runs SET state = 1, claim_id = $1::uuid, worker = $2::int, attempt = attempt + 1, started_at = now(),
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (ARRAY(SELECT d.run_id FROM d)) AND state = 0
RETURNING id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, coalesce(expires_at <= now(), false)::boolean AS expired, trace, args::text AS args, (SELECT count(*) FROM d)::int AS dealt;

-- name: ClaimFreeRuns :many
-- ClaimRuns for when somebody (a user's transaction, an operator) holds the row
-- of a pending run: locks the runs together with their rows of ready, and
-- passes over the pairs of which either is held. Dearer by the second lock.
WITH d AS MATERIALIZED (
    DELETE FROM durable.ready WHERE ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM (SELECT unnest($5::int[]) lane, unnest($6::timestamptz[]) mark, unnest($7::int[]) skip, unnest($8::int[]) take) s,
             LATERAL (SELECT r.ctid FROM durable.ready r JOIN durable.runs b ON b.id = r.run_id
                      WHERE r.lane = s.lane AND r.due_at >= s.mark AND r.due_at <= now()
                      ORDER BY r.due_at, r.run_id OFFSET s.skip LIMIT s.take FOR NO KEY UPDATE OF r, b SKIP LOCKED) x
        WHERE NOT EXISTS (SELECT FROM durable.lanes l WHERE l.id = abs(s.lane) AND l.paused)
        LIMIT $9))
    RETURNING run_id
), n AS (
    INSERT INTO durable.leases (claim_id, worker, acquired_at, expires_at, duration, alone, run_ids)
    SELECT $1::uuid, $2::int, now(), now() + $3::bigint * interval '1 microsecond', $3::bigint, $4::boolean, array_agg(d.run_id)
    FROM d HAVING count(*) > 0
)
UPDATE durable.runs SET state = 1, claim_id = $1::uuid, worker = $2::int, attempt = attempt + 1, started_at = now(),
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (ARRAY(SELECT d.run_id FROM d)) AND state = 0
RETURNING id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, coalesce(expires_at <= now(), false)::boolean AS expired, trace, args::text AS args, (SELECT count(*) FROM d)::int AS dealt;

-- name: ClaimedRuns :many
-- leases_pkey, runs_pkey. No locks. The answer to a claim that has been given
-- its runs before.
SELECT id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, coalesce(expires_at <= now(), false)::boolean AS expired, trace, args::text AS args, 0::int AS dealt
FROM durable.runs
WHERE id = ANY (ARRAY(SELECT unnest(l.run_ids) FROM durable.leases l WHERE l.claim_id = @claim_id::uuid)) AND claim_id = @claim_id::uuid AND state = 1;

-- name: RefuseClaim :exec
-- leases_pkey. Waits for a claim of this id that is under way, and where there is
-- none, inserts a lease of no runs: the claim, should it still come, is refused
-- (23505) until that expires and is reclaimed as nothing. Twice: the row is
-- there.
INSERT INTO durable.leases (claim_id, worker, acquired_at, expires_at, duration, alone, run_ids)
VALUES (@claim_id::uuid, @worker::int, now(), now() + (@duration::bigint) * interval '1 microsecond', @duration::bigint, @alone::boolean, '{}')
ON CONFLICT DO NOTHING;

-- name: HeldRuns :many
-- leases_pkey, runs_pkey. No locks. The runs that are still a claim's.
SELECT id
FROM durable.runs
WHERE id = ANY (ARRAY(SELECT unnest(l.run_ids) FROM durable.leases l WHERE l.claim_id = @claim_id::uuid)) AND claim_id = @claim_id::uuid AND state = 1;

-- name: Leased :one
-- leases_pkey. No locks. Whether a claim has a lease.
SELECT EXISTS (SELECT FROM durable.leases l WHERE l.claim_id = @claim_id::uuid)::boolean AS leased;

-- name: Undealt :many
-- leases_pkey, runs_pkey. No locks. Runs that a lease names and that are not
-- its claim's.
SELECT i.id::uuid AS id
FROM (SELECT unnest(l.run_ids) AS id FROM durable.leases l WHERE l.claim_id = @claim_id::uuid) i
WHERE NOT EXISTS (SELECT FROM durable.runs r WHERE r.id = i.id AND r.claim_id = @claim_id::uuid AND r.state = 1);

-- name: RegisterWorker :one
-- workers_instance_key. Locks its own row. A worker that is known uses up no
-- number: ON CONFLICT alone would take one each hour. Twice: the same row.
WITH u AS (
    UPDATE durable.workers SET seen_at = now() WHERE instance = @instance::uuid RETURNING id
), i AS (
    INSERT INTO durable.workers (instance, name)
    SELECT @instance::uuid, @name::text WHERE NOT EXISTS (SELECT FROM u)
    ON CONFLICT (instance) DO UPDATE SET seen_at = now()
    RETURNING id
)
SELECT id FROM u UNION ALL SELECT id FROM i;

-- name: TouchWorker :execrows
-- workers_instance_key. Locks its own row. No rows: it is not stored. Twice: the
-- same row.
UPDATE durable.workers SET seen_at = now() WHERE instance = @instance;
