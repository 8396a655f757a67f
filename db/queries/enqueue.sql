-- name: EnqueueRuns :many
-- runs_pkey and lanes_pkey. Locks only what it inserts. Twice: a run whose id is
-- stored is passed over, gets no second row in ready, and its id is returned;
-- where none is, nothing is compared. A lane number that does not stand for the
-- lane it was learnt as becomes NULL and fails the whole statement (23502). traces
-- is NULL when no run has one: unnest then yields no rows, and NULL stands beside
-- those of the others.
-- In a long transaction of the caller's now() would be its beginning, so the
-- statement's time counts. $1 lanes known, $2 their queues, $3 jobs, $4
-- priorities; of the runs: $5 ids, $6 lanes, $7 due at or null, $8 due after, $9
-- expire at, $10 timeouts, $11 max attempts, $12 on crash, $13 args, $14 tags, $15
-- traces. (sqlc stumbles over names here.)
WITH k AS MATERIALIZED (
    SELECT l.id
    FROM (SELECT pg_catalog.unnest($1::int[]) id, pg_catalog.unnest($2::text[]) queue, pg_catalog.unnest($3::text[]) job, pg_catalog.unnest($4::smallint[]) priority) w
    JOIN durable.lanes l ON l.id = w.id AND l.queue = w.queue AND l.job = w.job AND l.priority = w.priority
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace)
    SELECT u.id, CASE WHEN u.lane = ANY (ARRAY(SELECT k.id FROM k)) THEN u.lane END,
           coalesce(u.at, statement_timestamp() + u.after::float8 * interval '1 microsecond'), u.expires_at, nullif(u.timeout, 0),
           u.max_attempts, u.on_crash, u.args::json, u.tags::text[], u.trace
    FROM (SELECT pg_catalog.unnest($5::uuid[]) id, pg_catalog.unnest($6::int[]) lane, pg_catalog.unnest($7::timestamptz[]) at, pg_catalog.unnest($8::bigint[]) after,
                 pg_catalog.unnest($9::timestamptz[]) expires_at, pg_catalog.unnest($10::bigint[]) timeout,
                 pg_catalog.unnest($11::int[]) max_attempts, pg_catalog.unnest($12::smallint[]) on_crash,
                 pg_catalog.unnest($13::text[]) args, pg_catalog.unnest($14::text[]) tags, pg_catalog.unnest($15::text[]) trace) u
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT e.id::uuid AS id FROM (SELECT pg_catalog.unnest($5::uuid[]) id) e
WHERE (SELECT count(*) FROM i) < pg_catalog.cardinality($5::uuid[]) AND e.id NOT IN (SELECT i.id FROM i);

-- name: EnqueueAlike :many
-- EnqueueRuns for runs of one lane that differ in nothing but their ids and
-- args, which is the common case: half of the time of EnqueueRuns goes into
-- arrays that say the same for every run. $1 lane, $2 queue, $3 job, $4 priority,
-- $5 due at or null, $6 due after, $7 expire at, $8 timeout, $9 max attempts, $10
-- on crash, $11 tags, $12 ids, $13 args, $14 trace.
WITH k AS MATERIALIZED (
    SELECT l.id FROM durable.lanes l WHERE l.id = $1::int AND l.queue = $2::text AND l.job = $3::text AND l.priority = $4::smallint
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace)
    SELECT u.id, (SELECT k.id FROM k), coalesce($5::timestamptz, statement_timestamp() + $6::bigint::float8 * interval '1 microsecond'),
           $7::timestamptz, nullif($8::bigint, 0), $9::int, $10::smallint, u.args::json, $11::text::text[], $14::text
    FROM (SELECT pg_catalog.unnest($12::uuid[]) id, pg_catalog.unnest($13::text[]) args) u
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT e.id::uuid AS id FROM (SELECT pg_catalog.unnest($12::uuid[]) id) e
WHERE (SELECT count(*) FROM i) < pg_catalog.cardinality($12::uuid[]) AND e.id NOT IN (SELECT i.id FROM i);

-- name: EnqueueNew :exec
-- EnqueueAlike for runs that are most likely not stored yet: without ON CONFLICT
-- an index entry is neither looked for nor announced before it is written, and
-- no record of the WAL confirms it; a quarter of the time. runs_pkey and
-- lanes_pkey. Locks only what it inserts. Twice: runs_pkey refuses it (23505)
-- and nothing changes; EnqueueAlike then says which were stored.
WITH k AS MATERIALIZED (
    SELECT l.id FROM durable.lanes l WHERE l.id = $1::int AND l.queue = $2::text AND l.job = $3::text AND l.priority = $4::smallint
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace)
    SELECT u.id, (SELECT k.id FROM k), coalesce($5::timestamptz, statement_timestamp() + $6::bigint::float8 * interval '1 microsecond'),
           $7::timestamptz, nullif($8::bigint, 0), $9::int, $10::smallint, u.args::json, $11::text::text[], $14::text
    FROM (SELECT pg_catalog.unnest($12::uuid[]) id, pg_catalog.unnest($13::text[]) args) u
    RETURNING id, lane, due_at
)
-- block: enter-line of i
INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i;
-- end
