-- name: MakeBatches :many
-- Makes those of the batches that a call names and that are not there, and returns them.
-- Index: batches_pkey. Locks: what it inserts. Idempotent: a repeat finds them.
INSERT INTO durable.batches
    (id, name, fail_fast, closed, owner, open_until, ends_by, look_at)
SELECT
    given.id, given.name, given.fail_fast, given.open_for = 0 AND NOT given.owned,
    CASE WHEN given.owned THEN @owner::uuid END,
    CASE WHEN given.open_for > 0 THEN now() + given.open_for * interval '1 microsecond' END,
    CASE WHEN given.within > 0 THEN now() + given.within * interval '1 microsecond' END,
    now()
FROM (
    SELECT
        unnest(@ids::uuid[]) AS id,
        unnest(@names::text[]) AS name,
        unnest(@fail_fasts::boolean[]) AS fail_fast,
        unnest(@owned::boolean[]) AS owned,
        unnest(@open_fors::bigint[]) AS open_for,
        unnest(@withins::bigint[]) AS within
) given
WHERE given.name <> ''
ON CONFLICT DO NOTHING
RETURNING id;

-- name: ShareBatches :many
-- After runs were stored, in their transaction: until it ends, no other call closes or cancels the
-- batches that they are for.
-- Index: batches_pkey. Locks: the batches, for adding to them; a release does not wait for that.
SELECT id, owner, closed, cancelling, reason
FROM durable.batches
WHERE id = ANY (@ids::uuid[])
ORDER BY id
FOR KEY SHARE;

-- name: BatchOfRun :many
-- The batch that a run belongs to.
-- Index: members_pkey. Locks: none.
SELECT batch
FROM durable.members
WHERE run_id = @id::uuid;

-- name: AddMembers :many
-- After runs were stored, in their transaction: those that are new belong to batches. Those that
-- were stored before, and should belong to theirs and do not, are returned.
-- Index: members_pkey, runs_pkey. Locks: the new runs, which are the transaction's own.
-- Idempotent: a repeat finds that they were stored before.
WITH given AS MATERIALIZED (
    SELECT
        unnest(@ids::uuid[]) AS id,
        unnest(@batch_ids::uuid[]) AS batch,
        unnest(@stored::boolean[]) AS stored
), added AS (
    INSERT INTO durable.members (run_id, batch)
    SELECT given.id, given.batch
    FROM given
    WHERE given.stored
    RETURNING batch
), marked AS (
    UPDATE durable.runs
    SET links = coalesce(links, 0) | durable.link_member()
    WHERE id = ANY (ARRAY(SELECT given.id FROM given WHERE given.stored))
), counted AS (
    INSERT INTO durable.batch_changes (batch, members)
    SELECT added.batch, count(*)
    FROM added
    GROUP BY added.batch
)
SELECT given.id::uuid AS id
FROM given
WHERE NOT given.stored
  AND NOT EXISTS (
      SELECT
      FROM durable.members
      WHERE members.run_id = given.id
        AND members.batch = given.batch
  );

-- name: NoteEndOfOwner :exec
-- Has the end of a run noted that its transaction has locked: its batches are closed then.
-- Index: runs_pkey. Locks: the run. Idempotent: a repeat changes nothing.
UPDATE durable.runs
SET links = coalesce(links, 0) | durable.link_awaited()
WHERE id = @id::uuid
  AND coalesce(links, 0) & durable.link_awaited() = 0;

-- name: ChangedBatches :many
-- Batches after a cursor whose counts have changed, in order, and those at which it is time to
-- look. One may be both.
-- Index: batch_changes_batch, one probe for each; batches_look. Locks: none.
WITH RECURSIVE changed AS (
    (
        SELECT batch_changes.batch
        FROM durable.batch_changes
        WHERE batch_changes.batch > @after::uuid
        ORDER BY batch_changes.batch
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT batch_changes.batch
        FROM durable.batch_changes
        WHERE batch_changes.batch > changed.batch
        ORDER BY batch_changes.batch
        LIMIT 1
    )
    FROM changed
    WHERE changed.batch IS NOT NULL
), due AS (
    SELECT batches.id
    FROM durable.batches
    WHERE batches.look_at <= (SELECT clock_timestamp())
    ORDER BY batches.look_at
    LIMIT @most::int
)
(
    SELECT changed.batch::uuid AS id, true AS changed
    FROM changed
    WHERE changed.batch IS NOT NULL
    LIMIT @most::int
)
UNION ALL
SELECT due.id, false FROM due;

-- name: NextBatch :many
-- How long it is until it is time to look at a batch, in microseconds.
-- Index: batches_look. Locks: none.
SELECT (extract(epoch FROM batches.look_at - clock_timestamp()) * 1000000)::bigint AS within
FROM durable.batches
WHERE batches.look_at IS NOT NULL
ORDER BY batches.look_at
LIMIT 1;

-- name: LockBatches :many
-- Locks batches to count and to decide. Those that another one has are left to it.
-- Index: batches_pkey. Locks: the batches, with SKIP LOCKED; who adds runs does not wait.
SELECT id
FROM durable.batches
WHERE id = ANY (@ids::uuid[])
FOR NO KEY UPDATE SKIP LOCKED;

-- name: LockWhole :many
-- After LockBatches, in its transaction: those of the batches to which no call is adding runs.
-- Index: batches_pkey. Locks: the batches, with SKIP LOCKED; who adds runs waits.
SELECT id
FROM durable.batches
WHERE id = ANY (@ids::uuid[])
FOR UPDATE SKIP LOCKED;

-- name: FoldChanges :exec
-- After LockBatches, in its transaction: adds to the counts of batches what has changed of them.
-- Only who has locked the batch deletes a change, so what is in the row and what is not is exact
-- in every snapshot.
-- Index: batch_changes_batch, batches_pkey. Locks: the changes, which no other call locks.
-- Idempotent: what was added is gone.
WITH taken AS MATERIALIZED (
    SELECT batch_changes.batch, batch_changes.id
    FROM durable.batch_changes
    WHERE batch_changes.batch = ANY (@ids::uuid[])
    ORDER BY batch_changes.batch, batch_changes.id
    LIMIT @most::int
), gone AS (
    DELETE FROM durable.batch_changes
    USING taken
    WHERE batch_changes.batch = taken.batch
      AND batch_changes.id = taken.id
    RETURNING batch_changes.batch, batch_changes.members, batch_changes.succeeded,
        batch_changes.dead, batch_changes.cancelled
), sums AS (
    SELECT
        gone.batch,
        sum(gone.members) AS members,
        sum(gone.succeeded) AS succeeded,
        sum(gone.dead) AS dead,
        sum(gone.cancelled) AS cancelled
    FROM gone
    GROUP BY gone.batch
)
UPDATE durable.batches
SET members = batches.members + sums.members,
    succeeded = batches.succeeded + sums.succeeded,
    dead = batches.dead + sums.dead,
    cancelled = batches.cancelled + sums.cancelled
FROM sums
WHERE batches.id = sums.batch;

-- name: PruneChanges :exec
-- Deletes changes of batches that are gone. Those of the others are not read: there may be many.
-- Index: batch_changes_batch, batches_pkey. Locks: the changes. Idempotent: a repeat finds none.
DELETE FROM durable.batch_changes
WHERE batch = ANY (ARRAY(
    SELECT given.id
    FROM (SELECT unnest(@ids::uuid[]) AS id) given
    WHERE NOT EXISTS (
        SELECT
        FROM durable.batches
        WHERE batches.id = given.id
    )
));

-- name: FoldedBatches :many
-- After FoldChanges, in its transaction: the batches, and whether changes of them are left. One
-- without is whole: a run that was added by a member is counted before that member's end.
-- Index: batches_pkey, batch_changes_batch. Locks: none.
SELECT
    batches.id, batches.owner,
    batches.created_at, batches.open_until, batches.ends_by, batches.failed_at, batches.ended_at,
    batches.members, batches.succeeded, batches.dead, batches.cancelled,
    batches.state, batches.closed, batches.fail_fast, batches.cancelling,
    batches.name, batches.reason,
    batches.cursor, clock_timestamp()::timestamptz AS now,
    EXISTS (
        SELECT
        FROM durable.batch_changes
        WHERE batch_changes.batch = batches.id
    ) AS changing
FROM durable.batches
WHERE batches.id = ANY (@ids::uuid[]);

-- name: DecideBatch :exec
-- After FoldedBatches, in its transaction: writes what was decided about a batch, and has those
-- looked at that wait for it.
-- Index: batches_pkey. Locks: the batch, which the transaction has. Idempotent: a repeat decides
-- the same.
WITH noted AS (
    INSERT INTO durable.notices (run_id, kind)
    SELECT @id::uuid, durable.notice_ended()
    WHERE @notify::boolean
)
UPDATE durable.batches
SET state = @state::smallint,
    closed = @closed::boolean,
    cancelling = @cancelling::boolean,
    failed_at = @failed_at::timestamptz,
    ended_at = @ended_at::timestamptz,
    look_at = @look_at::timestamptz,
    reason = @reason::text
WHERE id = @id::uuid;

-- name: CancelMembers :many
-- After FoldedBatches, in its transaction: has members of a cancelled batch cancelled, from its
-- cursor on. Fewer than asked for: these were the last. Bounds as in MembersOf.
-- Index: members_batch, batches_pkey, runs_pkey. Locks: the batch, which the transaction has.
-- Idempotent: the cursor moves; a run that has ended is left alone.
WITH portion AS MATERIALIZED (
    SELECT members.run_id
    FROM durable.members
    WHERE (members.batch, members.run_id) > (@id::uuid, @after::uuid)
      AND (members.batch, members.run_id) <= (@id::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY members.batch, members.run_id
    LIMIT @most::int
), noted AS (
    INSERT INTO durable.notices (run_id, kind)
    SELECT portion.run_id, durable.notice_member()
    FROM portion
    JOIN durable.runs ON runs.id = portion.run_id
    WHERE durable.is_unfinished(runs.state)
), moved AS (
    UPDATE durable.batches
    SET cursor = coalesce((SELECT run_id FROM portion ORDER BY run_id DESC LIMIT 1), cursor)
    WHERE id = @id::uuid
)
SELECT count(*) AS members
FROM portion;

-- name: ReasonsOfMembers :many
-- Why the batches of runs were cancelled.
-- Index: members_pkey, batches_pkey. Locks: none.
SELECT members.run_id, batches.reason
FROM durable.members
JOIN durable.batches ON batches.id = members.batch
WHERE members.run_id = ANY (@ids::uuid[])
  AND batches.cancelling;

-- name: CloseOwned :exec
-- Closes the batches of a run that has ended, or is gone. A dead one keeps its batches open: it may
-- be retried, and go on adding to them.
-- Index: batches_owner, runs_pkey. Locks: the batches; those who close them take no time.
-- Idempotent: a repeat finds them closed.
UPDATE durable.batches
SET closed = true,
    look_at = now()
WHERE id = ANY (ARRAY(
    SELECT open_batches.id
    FROM durable.batches open_batches
    WHERE open_batches.owner = @owner::uuid
      AND NOT open_batches.closed
      AND NOT EXISTS (
          SELECT
          FROM durable.runs
          WHERE runs.id = @owner::uuid
            AND (durable.is_unfinished(runs.state) OR runs.state = durable.dead())
      )
    FOR NO KEY UPDATE
));

-- name: CloseBatch :many
-- Closes a batch. Index: batches_pkey. Locks: the batch; it waits for those who add runs to it.
-- Idempotent: a repeat finds it closed.
WITH locked_batches AS MATERIALIZED (
    SELECT batches.id, batches.closed
    FROM durable.batches
    WHERE batches.id = @id::uuid
    FOR UPDATE
), changed AS (
    UPDATE durable.batches
    SET closed = true,
        look_at = now()
    FROM locked_batches
    WHERE batches.id = locked_batches.id
      AND NOT locked_batches.closed
    RETURNING batches.id
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action)
    SELECT @actor::text, @kind::text, changed.id::text, @action::text
    FROM changed
)
SELECT locked_batches.id
FROM locked_batches;

-- name: CancelBatch :many
-- Has a batch that has not ended cancelled. Index: batches_pkey. Locks: the batch; it waits for
-- those who add runs to it. Idempotent: a repeat finds it cancelled.
WITH locked_batches AS MATERIALIZED (
    SELECT batches.id, batches.ended_at IS NULL AND NOT batches.cancelling AS fresh
    FROM durable.batches
    WHERE batches.id = @id::uuid
    FOR UPDATE
), changed AS (
    UPDATE durable.batches
    SET closed = true,
        cancelling = true,
        reason = CASE WHEN batches.reason = '' THEN @reason::text ELSE batches.reason END,
        look_at = now()
    FROM locked_batches
    WHERE batches.id = locked_batches.id
      AND locked_batches.fresh
    RETURNING batches.id
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action)
    SELECT @actor::text, @kind::text, changed.id::text, @action::text
    FROM changed
)
SELECT locked_batches.id
FROM locked_batches;

-- name: AwaitBatch :many
-- For a run that its transaction has locked: closes a batch that it owns, and has the batch's end
-- noted for one of its steps.
-- Index: batches_pkey, edges_pkey. Locks: the batch; it waits for those who add runs to it.
-- Idempotent: a repeat finds both.
WITH locked_batches AS MATERIALIZED (
    SELECT batches.id
    FROM durable.batches
    WHERE batches.id = @id::uuid
      AND batches.owner = @owner::uuid
    FOR UPDATE
), awaited AS (
    INSERT INTO durable.edges (waiter, source, wants, name)
    SELECT @owner::uuid, locked_batches.id, @wants::smallint, @name::text
    FROM locked_batches
    ON CONFLICT DO NOTHING
)
UPDATE durable.batches
SET closed = true,
    look_at = CASE WHEN closed THEN look_at ELSE now() END
WHERE id = ANY (ARRAY(SELECT locked_batches.id FROM locked_batches))
RETURNING id;

-- name: BatchesByID :many
-- Batches with their counts, what is not added to them yet included.
-- Index: batches_pkey, batch_changes_batch. Locks: none.
SELECT
    batches.id, batches.owner,
    batches.created_at, batches.open_until, batches.ends_by, batches.failed_at, batches.ended_at,
    batches.members + changes.members AS members,
    batches.succeeded + changes.succeeded AS succeeded,
    batches.dead + changes.dead AS dead,
    batches.cancelled + changes.cancelled AS cancelled,
    batches.state, batches.closed, batches.fail_fast, batches.cancelling,
    batches.name, batches.reason
FROM durable.batches,
LATERAL (
    SELECT
        coalesce(sum(batch_changes.members), 0)::bigint AS members,
        coalesce(sum(batch_changes.succeeded), 0)::bigint AS succeeded,
        coalesce(sum(batch_changes.dead), 0)::bigint AS dead,
        coalesce(sum(batch_changes.cancelled), 0)::bigint AS cancelled
    FROM durable.batch_changes
    WHERE batch_changes.batch = batches.id
) changes
WHERE batches.id = ANY (@ids::uuid[])
ORDER BY batches.id DESC;

-- name: BatchPage :many
-- Index: batches_pkey, backwards. Locks: none.
SELECT id
FROM durable.batches
WHERE (@before::uuid IS NULL OR id < @before::uuid)
  AND (@any_state::boolean OR state = ANY (@states::smallint[]))
  AND (@name::text = '' OR name = @name::text)
ORDER BY id DESC
LIMIT @most::int;

-- name: MembersOf :many
-- Bounds of both columns, because the planner would otherwise walk through the members of other
-- batches by their ids. Index: members_batch, runs_pkey, problems_pkey. Locks: none.
WITH portion AS MATERIALIZED (
    SELECT members.run_id
    FROM durable.members
    WHERE (members.batch, members.run_id) > (@batch::uuid, @after::uuid)
      AND (members.batch, members.run_id) <= (@batch::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY members.batch, members.run_id
    LIMIT @most::int
)
SELECT
    runs.id,
    lanes.job,
    runs.state,
    coalesce(runs.result::text, '')::text AS result,
    coalesce(problems.reason, '')::text AS reason
FROM portion
JOIN durable.runs ON runs.id = portion.run_id
JOIN durable.lanes ON lanes.id = abs(runs.lane)
LEFT JOIN durable.problems ON problems.run_id = runs.id
ORDER BY runs.id;

-- name: RunsOfBatch :many
-- The members of a batch, newest first.
-- Index: members_batch, backwards. Locks: none.
SELECT members.run_id AS id
FROM durable.members
WHERE members.batch = @batch::uuid
  AND members.run_id < @below::uuid
  AND members.run_id >= @from_id::uuid
ORDER BY members.run_id DESC
LIMIT @most::int;

-- name: EdgesToBatches :many
-- After LockNoticed in its transaction: which batches its runs wait for as dependents that have
-- never been executed. No batch: it is gone.
-- Index: edges_pkey, batches_pkey. Locks: none.
SELECT
    edges.waiter,
    edges.source,
    edges.wants,
    edges.any_of,
    edges.met,
    (batches.id IS NOT NULL)::boolean AS found,
    coalesce(batches.state, 0)::smallint AS state,
    (batches.failed_at IS NOT NULL)::boolean AS failed,
    (batches.ended_at IS NOT NULL)::boolean AS ended,
    coalesce(batches.cancelled, 0)::bigint AS cancelled
FROM durable.edges
JOIN durable.runs waiters ON waiters.id = edges.waiter
LEFT JOIN durable.batches ON batches.id = edges.source
WHERE edges.waiter = ANY (@ids::uuid[])
  AND edges.name = ''
  AND edges.wants > durable.want_of_batch()
  AND waiters.started_at IS NULL
  AND waiters.state = durable.pending()
  AND waiters.due_at > clock_timestamp();

-- name: BatchesFor :many
-- The batches that a run waits for, unmet conditions first.
-- Index: edges_pkey, batches_pkey. Locks: none.
SELECT
    edges.source AS id,
    edges.wants,
    edges.any_of,
    edges.met,
    edges.name,
    coalesce(batches.name, '')::text AS job,
    coalesce(batches.state, -1)::smallint AS state,
    coalesce(batches.cancelled, 0)::bigint AS cancelled
FROM durable.edges
LEFT JOIN durable.batches ON batches.id = edges.source
WHERE edges.waiter = @id::uuid
  AND edges.wants > durable.want_of_batch()
ORDER BY edges.met, edges.name, edges.source
LIMIT @most::int;

-- name: SweepBatches :one
-- Deletes ended batches whose retention has passed and that no unfinished run waits for, once
-- their members belong to no batch any more: these are runs like others then.
-- Returned is how many members and batches it was: none is left where it is zero.
-- Index: batches_ended, edges_source, members_batch. Locks: batches, with SKIP LOCKED.
-- Idempotent: a repeat finds them gone.
WITH over AS MATERIALIZED (
    SELECT batches.id
    FROM durable.batches
    WHERE batches.ended_at < now() - (@least::bigint) * interval '1 microsecond'
      AND batches.ended_at < now() - (
          CASE batches.state
              WHEN durable.batch_succeeded() THEN @kept::bigint
              ELSE @failed::bigint
          END
      ) * interval '1 microsecond'
      AND batches.members = batches.succeeded + batches.dead + batches.cancelled
      AND NOT EXISTS (
          SELECT
          FROM durable.edges
          JOIN durable.runs waiters ON waiters.id = edges.waiter
          WHERE edges.source = batches.id
            AND durable.is_unfinished(waiters.state)
      )
    ORDER BY batches.ended_at
    LIMIT @batches::int
    FOR UPDATE SKIP LOCKED
), freed AS (
    DELETE FROM durable.members
    WHERE run_id = ANY (ARRAY(
        SELECT portion.run_id
        FROM over,
        LATERAL (
            SELECT members.run_id
            FROM durable.members
            WHERE members.batch = over.id
            LIMIT @most::int
        ) portion
        LIMIT @most::int
    ))
    RETURNING run_id
), gone AS (
    DELETE FROM durable.batches
    USING over
    WHERE batches.id = over.id
      AND NOT EXISTS (
          SELECT
          FROM durable.members
          WHERE members.batch = batches.id
      )
    RETURNING batches.id
)
SELECT ((SELECT count(*) FROM freed) + (SELECT count(*) FROM gone))::bigint AS pruned;
