-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
-- Kinds of a step: 0 tried, 1 done, 2 failed, 3 sleep, 4 input.

-- name: ListInputs :many
-- Index: the primary key.
SELECT run_id, at, size, n, name, sender, digest, value
FROM inputs
WHERE run_id = @run_id
ORDER BY at, name;

-- name: FindInput :one
-- Index: the primary key.
SELECT run_id, at, size, n, name, sender, digest, value
FROM inputs
WHERE run_id = @run_id
  AND name = @name
  AND n = 0;

-- name: SumInputs :one
-- Index: the primary key; at most store.MaxInputs rows, without their values.
SELECT count(*) AS number, CAST(coalesce(sum(size), 0) AS INTEGER) AS bytes
FROM inputs
WHERE run_id = @run_id;

-- name: InsertInput :exec
-- Index: the primary key. The caller has found in the same transaction that the run has not
-- ended, and has no input of this name.
INSERT INTO inputs (run_id, at, size, name, sender, digest, value)
VALUES (@run_id, @at, @size, @name, @sender, @digest, @value);

-- name: GiveUp :exec
-- Index: the primary key. The caller has found in the same transaction that the run is the
-- claim's. Idempotent: a repeat finds the place taken.
INSERT INTO inputs (run_id, at, size, name)
VALUES (@run_id, @at, 0, @name)
ON CONFLICT DO NOTHING;

-- name: InsertNotice :exec
-- In the transaction that stores the input.
INSERT INTO notices (due_at, run_id, name)
VALUES (@due_at, @run_id, @name);

-- name: InsertLook :exec
-- In the transaction that stores the conditions, or meets one.
INSERT INTO notices (due_at, run_id, kind)
VALUES (@due_at, @run_id, 1);

-- name: NextNotice :one
-- Index: notices_due, its beginning.
SELECT due_at
FROM notices
ORDER BY due_at, id
LIMIT 1;

-- name: DueNotices :many
-- Index: notices_due, its beginning.
SELECT id, run_id, tries, kind, name, cursor
FROM notices
WHERE due_at <= @now
ORDER BY due_at, id
LIMIT @most;

-- name: DeleteNotice :exec
-- Index: the primary key. Idempotent: a repeat finds no row.
DELETE FROM notices
WHERE id = @id;

-- name: PutBackNotice :exec
-- Index: the primary key.
UPDATE notices
SET due_at = @due_at,
    tries = tries + 1
WHERE id = @id;

-- name: AdvanceNotice :exec
-- Index: the primary key. It is due immediately.
UPDATE notices
SET cursor = @cursor
WHERE id = @id;

-- name: FindAwaiting :one
-- Index: the key of runs, and the primary keys of steps and inputs. Met: the run has recorded
-- that it waits for an input of this name, and was sent one.
SELECT
    runs.state, runs.lane, runs.due_at, runs.limits,
    CAST(
        EXISTS (
            SELECT 1
            FROM steps
            WHERE steps.run_id = runs.id
              AND steps.name = @name
              AND steps.kind = 4
        )
        AND EXISTS (
            SELECT 1
            FROM inputs
            WHERE inputs.run_id = runs.id
              AND inputs.name = @name
              AND inputs.digest IS NOT NULL
        ) AS INTEGER
    ) AS met
FROM runs
WHERE runs.id = @run_id;

-- name: MakeDue :exec
-- Index: the key of runs. The caller has found the run pending in the same transaction, and
-- moves it to its new place in the line.
UPDATE runs
SET due_at = @due_at
WHERE id = @id
  AND state = 0;
