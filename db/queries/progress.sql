-- name: Report :execrows
-- Stores the progress of a run, or its checkpoint; what is null stays as it is. No row:
-- the run no longer belongs to the claim.
-- Index: runs_pkey, then progress_pkey. Locks: the run while it still belongs to the
-- claim, so that it cannot be settled or reclaimed in between, then its row of progress;
-- it fails where the run is locked already.
-- Idempotent: a repeat writes the same values.
WITH locked_run AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = @run_id
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
    FOR NO KEY UPDATE NOWAIT
)
INSERT INTO durable.progress (run_id, updated_at, fraction, note, checkpoint)
SELECT
    locked_run.id,
    now(),
    sqlc.narg(fraction)::real,
    sqlc.narg(note)::text,
    sqlc.narg(checkpoint)::text::json
FROM locked_run
ON CONFLICT (run_id) DO UPDATE
SET updated_at = excluded.updated_at,
    fraction = coalesce(excluded.fraction, progress.fraction),
    note = coalesce(excluded.note, progress.note),
    checkpoint = coalesce(excluded.checkpoint, progress.checkpoint);

-- name: Checkpoint :many
-- Index: progress_pkey. Locks: none.
SELECT checkpoint::text AS checkpoint
FROM durable.progress
WHERE run_id = @run_id
  AND checkpoint IS NOT NULL;

-- name: ProgressOf :many
-- Index: progress_pkey. Locks: none.
SELECT
    run_id,
    coalesce(fraction, 0)::real AS fraction,
    coalesce(note, '')::text AS note,
    updated_at
FROM durable.progress
WHERE run_id = ANY (@ids::uuid[])
  AND coalesce(fraction::text, note) IS NOT NULL;
