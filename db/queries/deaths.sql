-- name: ListDeaths :many
-- The oldest deaths of runs of some jobs.
-- Index: deaths_job. Locks: none.
SELECT
    id,
    run_id,
    job,
    ran_as,
    died_at,
    (extract(epoch FROM clock_timestamp() - died_at) * 1000000)::bigint AS age,
    coalesce(args::text, '')::text AS args,
    coalesce(reason, '')::text AS reason
FROM durable.deaths
WHERE job = ANY (@jobs::text[])
ORDER BY id
LIMIT @most::int;

-- name: TakeDeaths :many
-- Removes deaths, before their runs are stored in its transaction. The ids of those that it has
-- removed.
-- Index: deaths_pkey. Locks: the deaths, with SKIP LOCKED.
-- Idempotent: a repeat finds none.
DELETE FROM durable.deaths
WHERE id = ANY (ARRAY(
    SELECT locked.id
    FROM durable.deaths locked
    WHERE locked.id = ANY (@ids::bigint[])
    ORDER BY locked.id
    FOR UPDATE SKIP LOCKED
))
RETURNING id;
