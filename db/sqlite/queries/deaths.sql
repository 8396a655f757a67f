-- name: ListDeaths :many
-- Index: deaths_job.
SELECT id, run_id, job, ran_as, died_at, args, coalesce(reason, '') AS reason
FROM deaths
WHERE job IN (SELECT value FROM json_each(@jobs))
ORDER BY id
LIMIT @most;

-- name: DeleteDeath :execrows
-- Index: the key of deaths. Before its run is stored in the transaction. Idempotent: a repeat finds
-- none.
DELETE FROM deaths
WHERE id = @id;
