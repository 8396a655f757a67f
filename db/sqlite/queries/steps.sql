-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
-- Kinds of a step: 0 tried, 1 done, 2 failed, 3 sleep, 4 input.

-- name: ListSteps :many
-- Index: the primary key.
SELECT run_id, at, until, took, tries, kind, name, error, code, value
FROM steps
WHERE run_id = @run_id
ORDER BY at, name;

-- name: FindStep :one
-- Index: the primary key.
SELECT run_id, at, until, took, tries, kind, name, error, code, value
FROM steps
WHERE run_id = @run_id
  AND name = @name;

-- name: RecordStep :execrows
-- Index: the key of runs, and the primary key. Fenced by the claim: no row is counted when the
-- run is no longer the claim's, or when a result is stored. Tries only rise. Idempotent: a
-- repeat finds the result, or writes the same tries again.
INSERT INTO steps (run_id, at, took, tries, kind, name, error, code, value)
SELECT runs.id, @at, @took, @tries, @kind, @name, @error, @code, @value
FROM runs
WHERE runs.id = @run_id
  AND runs.claim_id = @claim_id
  AND runs.state = 1
ON CONFLICT (run_id, name) DO UPDATE
SET at = excluded.at,
    took = excluded.took,
    tries = max(tries, excluded.tries),
    kind = excluded.kind,
    error = excluded.error,
    code = excluded.code,
    value = excluded.value
WHERE steps.kind IN (0, 5);

-- name: RecordWait :execrows
-- Index: the primary key. The caller has found in the same transaction that the run is the
-- claim's. Idempotent: a repeat finds the wait, and counts no row.
INSERT INTO steps (run_id, at, until, tries, kind, name)
VALUES (@run_id, @at, @until, @children, @kind, @name)
ON CONFLICT DO NOTHING;

-- name: BeginStretch :exec
-- Index: the key of runs. A wait of the run was recorded in the same transaction: no crash
-- counts any more, the run is not isolated, and this attempt is the first.
UPDATE runs
SET attempt = 1,
    crash_count = 0,
    lane = abs(lane)
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1;

-- name: DeleteStep :execrows
-- Index: the primary key. The caller has found in the same transaction that the run is not
-- executing. Idempotent: a repeat finds no row.
DELETE FROM steps
WHERE run_id = @run_id
  AND name = @name;

-- name: DeleteMark :exec
-- Index: the primary key. That the run has given up waiting for an input; as DeleteStep.
DELETE FROM inputs
WHERE run_id = @run_id
  AND name = @name
  AND digest IS NULL;

-- name: ListStepKinds :many
-- Index: the primary key. What a retry decides by, without the values.
SELECT name, kind, at
FROM steps
WHERE run_id = @run_id;

-- name: ListMarks :many
-- Index: the primary key. The inputs that a run has given up waiting for.
SELECT name, at
FROM inputs
WHERE run_id = @run_id
  AND digest IS NULL;

-- name: DeleteSteps :many
-- Index: the primary key. Of a run that is deleted in the same transaction; the size of each.
-- Idempotent: a repeat finds no rows.
DELETE FROM steps
WHERE run_id = @run_id
RETURNING CAST(coalesce(length(value), 0) AS INTEGER) AS size;

-- name: DeleteInputs :many
-- DeleteSteps for the inputs of a run.
DELETE FROM inputs
WHERE run_id = @run_id
RETURNING size;

-- name: FindExpiry :one
-- Index: the key of runs.
SELECT expires_at
FROM runs
WHERE id = @id;
