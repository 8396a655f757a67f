-- name: InsertKeys :exec
-- unique_keys_pkey. In the order given, which is the same for everybody; waits
-- for whoever has just inserted the same key. Twice: conflicts are passed over,
-- without a dead row. As below, clock_timestamp() is the enqueue's time where
-- now() may be the begin of a caller's long transaction.
INSERT INTO durable.unique_keys (job, key, run_id, latest, held_to)
SELECT w.job, w.name, w.id, w.id, CASE WHEN w.micros > 0 THEN clock_timestamp() + w.micros::float8 * interval '1 microsecond' END
FROM (SELECT pg_catalog.unnest(@jobs::text[]) job, pg_catalog.unnest(@keys::text[]) name, pg_catalog.unnest(@run_ids::uuid[]) id, pg_catalog.unnest(@held_fors::bigint[]) micros) w
ON CONFLICT DO NOTHING;

-- name: LockKeys :many
-- unique_keys_pkey, one probe per key: what locks is not merged into a join.
-- Locks the rows in the order given and waits for whoever has them, so that the
-- statements after it see what the one before has left. A row that whoever had
-- it has deleted is not returned, and nothing is locked in its place.
SELECT k.run_id
FROM (SELECT pg_catalog.unnest(@jobs::text[]) job, pg_catalog.unnest(@keys::text[]) name) w,
     LATERAL (SELECT u.run_id FROM durable.unique_keys u WHERE u.job = w.job AND u.key = w.name FOR UPDATE) k;

-- name: KeyHolders :many
-- unique_keys_pkey and runs_pkey, one probe each per key (OFFSET keeps it so).
-- No locks: the keys are locked, and of a holder's state only that it has ended
-- is for good. A key whose row is gone is not returned.
SELECT k.job, k.key, k.run_id, k.latest, k.held, (r.id IS NOT NULL)::boolean AS stored,
       coalesce(r.state, 0)::smallint AS state, coalesce(r.lane, 0)::int AS lane, coalesce(r.due_at, 'epoch')::timestamptz AS due_at
FROM (SELECT pg_catalog.unnest(@jobs::text[]) job, pg_catalog.unnest(@keys::text[]) name) w
CROSS JOIN LATERAL (SELECT u.job, u.key, u.run_id, u.latest, coalesce(u.held_to > clock_timestamp(), false)::boolean AS held
                    FROM durable.unique_keys u WHERE u.job = w.job AND u.key = w.name OFFSET 0) k
LEFT JOIN LATERAL (SELECT b.id, b.state, b.lane, b.due_at FROM durable.runs b WHERE b.id = k.run_id OFFSET 0) r ON true;

-- name: StoredRuns :many
-- runs_pkey. No locks. Which of the runs are there already.
SELECT id FROM durable.runs WHERE id = ANY (@ids::uuid[]);

-- name: TakeReady :many
-- ready_order. Takes the place of a pending run out of its line, and waits for
-- a claim that has it: no row comes back when that one has taken it.
DELETE FROM durable.ready WHERE lane = @lane::int AND due_at = @due_at::timestamptz AND run_id = @run_id::uuid RETURNING run_id;

-- name: ReplaceRun :many
-- runs_pkey. The transaction has taken the run's row of ready, so nobody else
-- changes the run. Leaves it isolated where it was. What an attempt has noted
-- for the next one was about other args. A lane number that does not stand for
-- the lane it was learnt as becomes NULL and fails (23502). The lane: $2 number,
-- $3 queue, $4 job, $5 priority; when due: $6 at or null, $7 after, $8 at most
-- after it was first stored or 0, microseconds; $9 timeout. (sqlc stumbles over
-- names here.)
WITH u AS (
    UPDATE durable.runs SET
        lane = (SELECT CASE WHEN runs.lane < 0 THEN -l.id ELSE l.id END FROM durable.lanes l
                WHERE l.id = $2::int AND l.queue = $3::text AND l.job = $4::text AND l.priority = $5::smallint),
        due_at = least(coalesce($6::timestamptz, clock_timestamp() + $7::bigint::float8 * interval '1 microsecond'),
                       CASE WHEN $8::bigint > 0 THEN created_at + $8::bigint::float8 * interval '1 microsecond' END),
        timeout = nullif($9::bigint, 0), expires_at = $10::timestamptz, max_attempts = $11::int, on_crash = $12::smallint,
        args = $13::text::json, tags = $14::text::text[], trace = $15::text, attempt = 0
    WHERE id = $1::uuid AND state = 0
    RETURNING id, lane, due_at
), p AS (
    DELETE FROM durable.progress WHERE run_id = $1::uuid
)
-- block: enter-line of u
INSERT INTO durable.ready (lane, due_at, run_id) SELECT u.lane, u.due_at, u.id FROM u
-- end
RETURNING run_id;

-- name: EnqueueKeyedRuns :many
-- EnqueueRuns for runs of which some have keys, which the transaction has locked.
WITH k AS MATERIALIZED (
    SELECT l.id
    FROM (SELECT pg_catalog.unnest(@known::int[]) id, pg_catalog.unnest(@queues::text[]) queue, pg_catalog.unnest(@jobs::text[]) job, pg_catalog.unnest(@priorities::smallint[]) priority) w
    JOIN durable.lanes l ON l.id = w.id AND l.queue = w.queue AND l.job = w.job AND l.priority = w.priority
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, key, trace)
    SELECT u.id, CASE WHEN u.lane = ANY (ARRAY(SELECT k.id FROM k)) THEN u.lane END,
           coalesce(u.at, statement_timestamp() + u.after::float8 * interval '1 microsecond'), u.expires_at, nullif(u.timeout, 0),
           u.max_attempts, u.on_crash, u.args::json, u.tags::text[], nullif(u.name, ''), u.trace
    FROM (SELECT pg_catalog.unnest(@ids::uuid[]) id, pg_catalog.unnest(@lanes::int[]) lane, pg_catalog.unnest(@ats::timestamptz[]) at, pg_catalog.unnest(@afters::bigint[]) after,
                 pg_catalog.unnest(@expiries::timestamptz[]) expires_at, pg_catalog.unnest(@timeouts::bigint[]) timeout,
                 pg_catalog.unnest(@max_attempts::int[]) max_attempts, pg_catalog.unnest(@on_crashes::smallint[]) on_crash,
                 pg_catalog.unnest(@args::text[]) args, pg_catalog.unnest(@tags::text[]) tags, pg_catalog.unnest(@keys::text[]) name,
                 pg_catalog.unnest(@traces::text[]) trace) u
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT i.id FROM i;

-- name: SetKey :exec
-- unique_keys_pkey; a row that the transaction has locked. A holder that is
-- only replaced keeps its time. $1 job, $2 key, $3 holder, $4 latest, $5
-- microseconds held or 0.
UPDATE durable.unique_keys SET
    held_to = CASE WHEN run_id = $3::uuid THEN held_to WHEN $5::bigint > 0 THEN clock_timestamp() + $5::bigint::float8 * interval '1 microsecond' END,
    run_id = $3::uuid, latest = $4::uuid
WHERE job = $1::text AND key = $2::text;

-- name: EnqueueNewKeyed :many
-- EnqueueAlike for runs of which some have keys, each one's own, that most likely
-- nobody holds. unique_keys_pkey, runs_pkey and lanes_pkey. Locks only what it
-- inserts, the keys first and in the order everybody locks in; waits for whoever
-- has just inserted the same key. Unless all keys are free no run is stored; one
-- that is stored already is passed over. When fewer ids come back than there are
-- runs the transaction holds the keys that were free, and has to ask about the others. Twice: the same. $1 to $14 are those
-- of EnqueueAlike; $15 keys, empty where a run has none, $16 microseconds held or 0.
WITH k AS MATERIALIZED (
    SELECT l.id FROM durable.lanes l WHERE l.id = $1::int AND l.queue = $2::text AND l.job = $3::text AND l.priority = $4::smallint
), h AS (
    INSERT INTO durable.unique_keys (job, key, run_id, latest, held_to)
    SELECT $3::text, w.name, w.id, w.id, CASE WHEN $16::bigint > 0 THEN clock_timestamp() + $16::bigint::float8 * interval '1 microsecond' END
    FROM (SELECT pg_catalog.unnest($12::uuid[]) id, pg_catalog.unnest($15::text[]) name) w WHERE w.name <> '' ORDER BY w.name COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING run_id
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace, key)
    SELECT u.id, (SELECT k.id FROM k), coalesce($5::timestamptz, statement_timestamp() + $6::bigint::float8 * interval '1 microsecond'),
           $7::timestamptz, nullif($8::bigint, 0), $9::int, $10::smallint, u.args::json, $11::text::text[], $14::text, nullif(u.name, '')
    FROM (SELECT pg_catalog.unnest($12::uuid[]) id, pg_catalog.unnest($13::text[]) args, pg_catalog.unnest($15::text[]) name) u
    WHERE (SELECT count(*) FROM h) = pg_catalog.cardinality(pg_catalog.array_remove($15::text[], ''))
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
-- block: enter-line of i
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
-- end
)
SELECT i.id FROM i;
