-- name: EnqueueRuns :many
-- runs_pkey and lanes_pkey. Locks only what it inserts. Twice: a run whose id is
-- stored is passed over, gets no second row in ready, and its id is not
-- returned. A lane number that does not stand for the lane it was learnt as
-- becomes NULL and fails the whole statement (23502). traces is NULL when no run
-- has one: unnest then yields no rows, and NULL stands beside those of the others.
-- In a long transaction of the caller's now() would be its beginning, so the
-- statement's time counts.
WITH k AS MATERIALIZED (
    SELECT l.id
    FROM (SELECT unnest(@known::int[]) id, unnest(@queues::text[]) queue, unnest(@jobs::text[]) job, unnest(@priorities::smallint[]) priority) w
    JOIN durable.lanes l ON l.id = w.id AND l.queue = w.queue AND l.job = w.job AND l.priority = w.priority
), i AS (
    INSERT INTO durable.runs (id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, trace)
    SELECT u.id, CASE WHEN u.lane = ANY (ARRAY(SELECT k.id FROM k)) THEN u.lane END,
           coalesce(u.at, statement_timestamp() + u.after * interval '1 microsecond'), u.expires_at, nullif(u.timeout, 0),
           u.max_attempts, u.on_crash, u.args::json, u.tags::text[], u.trace
    FROM (SELECT unnest(@ids::uuid[]) id, unnest(@lanes::int[]) lane, unnest(@ats::timestamptz[]) at, unnest(@afters::bigint[]) after,
                 unnest(@expiries::timestamptz[]) expires_at, unnest(@timeouts::bigint[]) timeout,
                 unnest(@max_attempts::int[]) max_attempts, unnest(@on_crashes::smallint[]) on_crash,
                 unnest(@args::text[]) args, unnest(@tags::text[]) tags, unnest(@traces::text[]) trace) u
    ON CONFLICT DO NOTHING
    RETURNING id, lane, due_at
), q AS (
    INSERT INTO durable.ready (lane, due_at, run_id) SELECT i.lane, i.due_at, i.id FROM i
)
SELECT i.id FROM i;
