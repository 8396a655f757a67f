-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
-- States of a batch: store.BatchState.

-- name: InsertBatch :exec
-- The caller has found in the same transaction that there is none. It is due immediately: one
-- without members has ended.
INSERT INTO batches (
    id, owner, created_at, open_until, ends_by, due_at, is_closed, fail_fast, name
)
VALUES (@id, @owner, @created_at, @open_until, @ends_by, 0, @is_closed, @fail_fast, @name);

-- name: FindBatch :one
-- Index: the primary key.
SELECT
    id, owner, created_at, open_until, ends_by, failed_at, ended_at, due_at, members, succeeded,
    dead, cancelled, state, is_closed, is_cancelled, fail_fast, name, reason, cursor
FROM batches
WHERE id = @id;

-- name: FindMember :one
-- Index: the primary key. The batch that a run belongs to.
SELECT batch
FROM members
WHERE run_id = @run_id;

-- name: InsertMember :exec
-- In the transaction that stores the run. Idempotent: a repeat finds the row.
INSERT INTO members (run_id, batch)
VALUES (@run_id, @batch)
ON CONFLICT DO NOTHING;

-- name: CountMembers :exec
-- Index: the primary key. In the transaction that adds so many members.
UPDATE batches
SET members = members + @added
WHERE id = @id;

-- name: NextBatches :many
-- Index: batches_due, its beginning.
SELECT id, CAST(due_at AS INTEGER) AS due_at
FROM batches
WHERE batches.due_at IS NOT NULL
ORDER BY batches.due_at, batches.id
LIMIT @most;

-- name: DueBatches :many
-- Index: batches_due, its beginning.
SELECT
    id, owner, created_at, open_until, ends_by, failed_at, ended_at, due_at, members, succeeded,
    dead, cancelled, state, is_closed, is_cancelled, fail_fast, name, reason, cursor
FROM batches
WHERE due_at <= @now
ORDER BY due_at, id
LIMIT @most;

-- name: DecideBatch :exec
-- Index: the primary key. The caller has read the counts in the same transaction. Idempotent: a
-- repeat writes the same.
UPDATE batches
SET state = @state,
    is_closed = @is_closed,
    is_cancelled = @is_cancelled,
    failed_at = @failed_at,
    ended_at = @ended_at,
    reason = @reason,
    cursor = @cursor,
    due_at = @due_at
WHERE id = @id;

-- name: CloseBatch :exec
-- Index: the primary key. Idempotent: a repeat finds it closed.
UPDATE batches
SET is_closed = 1,
    due_at = 0
WHERE id = @id
  AND is_closed = 0;

-- name: CloseOwned :exec
-- Index: batches_owner, and the key of runs. The batches whose owner has ended, or is gone.
-- A dead one keeps its batches open: it may be retried, and go on adding to them.
-- Idempotent: a repeat finds them closed.
UPDATE batches
SET is_closed = 1,
    due_at = 0
WHERE owner = @owner
  AND is_closed = 0
  AND NOT EXISTS (
      SELECT 1
      FROM runs
      WHERE runs.id = @owner
        AND (runs.state < 2 OR runs.state = 4)
  );

-- name: CancelBatch :exec
-- Index: the primary key. The cursor is before its first member. Idempotent: a repeat finds it
-- cancelled.
UPDATE batches
SET is_closed = 1,
    is_cancelled = 1,
    reason = @reason,
    cursor = @cursor,
    due_at = 0
WHERE id = @id
  AND is_cancelled = 0;

-- name: NoticeEnded :exec
-- In the transaction that decides about the batch: others may wait for it.
INSERT INTO notices (due_at, run_id, kind)
VALUES (@due_at, @batch, 2);

-- name: EndOfPortion :one
-- Index: members_batch, behind a cursor: so many members. No row: the batch has fewer.
SELECT run_id
FROM members
WHERE batch = @batch
  AND run_id > @after
ORDER BY run_id
LIMIT 1
OFFSET @skip;

-- name: NoticeMembers :exec
-- Index: members_batch, from one cursor to the other, then the key of runs. The caller moves the
-- cursor in the same transaction.
INSERT INTO notices (due_at, run_id, kind)
SELECT @due_at, members.run_id, 4
FROM members
JOIN runs ON runs.id = members.run_id
WHERE members.batch = @batch
  AND members.run_id > @after
  AND members.run_id <= @upto
  AND runs.state < 2;

-- name: WhyCancelled :one
-- Index: the primary keys. Why a run is cancelled with its batch. No row: it is not.
SELECT batches.reason
FROM members
JOIN batches ON batches.id = members.batch
WHERE members.run_id = @run_id
  AND batches.is_cancelled <> 0
  AND batches.ended_at IS NULL;

-- name: ListBatches :many
-- The primary key backwards.
SELECT
    id, owner, created_at, open_until, ends_by, failed_at, ended_at, due_at, members, succeeded,
    dead, cancelled, state, is_closed, is_cancelled, fail_fast, name, reason, cursor
FROM batches
WHERE id < @before
ORDER BY id DESC
LIMIT @most;

-- name: ListBatchesOf :many
-- Index: batches_state, backwards.
SELECT
    id, owner, created_at, open_until, ends_by, failed_at, ended_at, due_at, members, succeeded,
    dead, cancelled, state, is_closed, is_cancelled, fail_fast, name, reason, cursor
FROM batches
WHERE state = @state
  AND id < @before
ORDER BY id DESC
LIMIT @most;

-- name: ListBatchesNamed :many
-- Index: batches_name, backwards. An empty list of states: all.
SELECT
    id, owner, created_at, open_until, ends_by, failed_at, ended_at, due_at, members, succeeded,
    dead, cancelled, state, is_closed, is_cancelled, fail_fast, name, reason, cursor
FROM batches
WHERE name = @name
  AND id < @before
  AND (@states = '[]' OR state IN (SELECT wanted.value FROM json_each(@states) wanted))
ORDER BY id DESC
LIMIT @most;

-- name: ListMembers :many
-- Index: members_batch, behind a cursor, then the keys of runs, lanes and problems.
SELECT
    runs.id, lanes.job, runs.state, runs.result, coalesce(problems.reason, '') AS reason
FROM members
JOIN runs ON runs.id = members.run_id
JOIN lanes ON lanes.id = abs(runs.lane)
LEFT JOIN problems ON problems.run_id = runs.id
WHERE members.batch = @batch
  AND members.run_id > @after
ORDER BY members.run_id
LIMIT @most;

-- name: RunsOfBatch :many
-- Index: members_batch, backwards. The members of a batch, newest first.
SELECT run_id
FROM members
WHERE batch = @batch
  AND run_id < @below
  AND run_id >= @from_id
ORDER BY run_id DESC
LIMIT @most;

-- name: FindForgotten :one
-- Index: batches_ended, its beginning, then edges_source and the key of runs. A batch of a state
-- that has ended before an instant, of which no member is unfinished, and for which no unfinished
-- run waits.
SELECT batches.id
FROM batches
WHERE batches.state = @state
  AND batches.ended_at < @before
  AND batches.members = batches.succeeded + batches.dead + batches.cancelled
  AND NOT EXISTS (
      SELECT 1
      FROM edges
      JOIN runs ON runs.id = edges.waiter
      WHERE edges.source = batches.id
        AND runs.state < 2
  )
ORDER BY batches.ended_at
LIMIT 1;

-- name: ForgetMembers :execrows
-- Index: members_batch, its beginning, then the primary key. The runs stay. Idempotent: a repeat
-- takes the next ones.
DELETE FROM members
WHERE run_id IN (
      SELECT first.run_id
      FROM members first
      WHERE first.batch = @batch
      ORDER BY first.run_id
      LIMIT @most
  );

-- name: ForgetBatch :exec
-- Index: the primary key. The caller has found in the same transaction that it has no members
-- any more. Idempotent: a repeat finds no row.
DELETE FROM batches
WHERE id = @id;
