-- name: Report :execrows
-- runs_pkey, then progress_pkey. Locks the run while it is still the claim's, so
-- that it cannot be settled or taken back in between, then its row of progress;
-- it fails where the run is locked already. What is null stays as it is. No row:
-- the run is no longer the claim's. Twice: the same values.
WITH r AS MATERIALIZED (
    SELECT id FROM durable.runs WHERE id = @run_id AND claim_id = @claim_id::uuid AND state = 1 FOR NO KEY UPDATE NOWAIT
)
INSERT INTO durable.progress (run_id, updated_at, fraction, note, checkpoint)
SELECT r.id, now(), sqlc.narg(fraction)::real, sqlc.narg(note)::text, sqlc.narg(checkpoint)::text::json FROM r
ON CONFLICT (run_id) DO UPDATE SET updated_at = excluded.updated_at,
    fraction = coalesce(excluded.fraction, progress.fraction), note = coalesce(excluded.note, progress.note),
    checkpoint = coalesce(excluded.checkpoint, progress.checkpoint);

-- name: Checkpoint :many
-- progress_pkey. No locks.
SELECT checkpoint::text AS checkpoint FROM durable.progress WHERE run_id = @run_id AND checkpoint IS NOT NULL;

-- name: ProgressOf :many
-- progress_pkey. No locks.
SELECT run_id, fraction::real AS fraction, coalesce(note, '')::text AS note, updated_at
FROM durable.progress WHERE run_id = ANY (@ids::uuid[]) AND fraction IS NOT NULL;
