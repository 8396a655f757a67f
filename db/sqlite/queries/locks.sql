-- name: ListSlots :many
-- Index: the primary key of locks.
SELECT slot, fence, claim_id, expires_at
FROM locks
WHERE name = @name
ORDER BY slot;

-- name: GrantLock :exec
-- The caller has found the slot free in the same write transaction.
INSERT INTO locks (name, slot, fence, claim_id, acquired_at, expires_at, owner)
VALUES (@name, @slot, @fence, @claim_id, @acquired_at, @expires_at, @owner)
ON CONFLICT (name, slot) DO UPDATE
SET fence = excluded.fence,
    claim_id = excluded.claim_id,
    acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at,
    owner = excluded.owner;

-- name: RenewLock :execrows
-- Index: locks_claim. Expired or not: as long as the row has the claim, no other claim
-- has the slot. A row without a name refuses the claim: see RefuseLock.
UPDATE locks
SET expires_at = @expires_at
WHERE claim_id = @claim_id
  AND name <> '';

-- name: ReleaseLock :execrows
-- Index: locks_claim. Fenced by the claim. Idempotent: a repeat counts no row.
UPDATE locks
SET claim_id = NULL,
    expires_at = @now
WHERE claim_id = @claim_id
  AND name = @name;

-- name: RefuseLock :exec
-- Keeps a claim that holds nothing from being granted later: a row without a name, which
-- no lock can have, takes it. The slot only tells such rows apart.
-- Index: locks_claim, the primary key. Idempotent: a repeat inserts nothing.
INSERT INTO locks (name, slot, fence, claim_id, acquired_at, expires_at, owner)
VALUES ('', @slot, 0, @claim_id, @now, @expires_at, '')
ON CONFLICT DO NOTHING;

-- name: RefusedLocks :one
-- Index: locks_claim.
SELECT count(*)
FROM locks
WHERE claim_id = @claim_id
  AND name = '';

-- name: DeleteRefusedLocks :exec
-- Index: the primary key of locks; there are few such rows.
DELETE FROM locks
WHERE name = ''
  AND expires_at < @now;

-- name: DeleteOldLocks :exec
-- Index: locks_expiry; some at a time.
DELETE FROM locks
WHERE (name, slot) IN (
      SELECT locks.name, locks.slot
      FROM locks
      WHERE locks.expires_at < @before
      LIMIT 100
  );

-- name: ListLocks :many
-- Walks the primary key of locks from the prefix on.
SELECT name, slot, owner, claim_id, fence, acquired_at, expires_at
FROM locks
WHERE claim_id IS NOT NULL
  AND name <> ''
  AND name >= @prefix
  AND substr(name, 1, length(@prefix)) = @prefix
ORDER BY name, slot
LIMIT @most;

-- name: ForceReleaseLock :one
-- Index: the primary key of locks. Idempotent: a repeat finds no row.
UPDATE locks
SET claim_id = NULL,
    expires_at = @now
WHERE name = @name
  AND slot = @slot
  AND claim_id IS NOT NULL
RETURNING owner, fence;

-- name: InsertAudit :exec
INSERT INTO audit (at, actor, kind, subject, action, detail)
VALUES (@at, @actor, 'lock', @subject, 'release', @detail);

-- name: ListForced :many
SELECT at, actor, subject, detail
FROM audit
WHERE kind = 'lock'
  AND action = 'release'
ORDER BY id DESC
LIMIT @most;

-- name: NoteWait :exec
-- Index: the primary key of lock_waits.
INSERT INTO lock_waits (name, waiter, since, until, calls, owner)
VALUES (@name, @waiter, @since, @until, @calls, @owner)
ON CONFLICT (name, waiter) DO UPDATE
SET until = excluded.until,
    calls = excluded.calls,
    since = CASE
        WHEN lock_waits.until > excluded.since THEN lock_waits.since
        ELSE excluded.since
    END;

-- name: DeleteWait :exec
-- Index: the primary key of lock_waits.
DELETE FROM lock_waits
WHERE name = @name
  AND waiter = @waiter;

-- name: DeleteLapsedWaits :exec
-- Reads the table, a small one.
DELETE FROM lock_waits
WHERE until < @before;

-- name: TellWait :execrows
-- Index: the primary key of lock_waits. Counts up one of those who wait, any.
UPDATE lock_waits
SET freed = freed + 1
WHERE (name, waiter) IN (
      SELECT lock_waits.name, lock_waits.waiter
      FROM lock_waits
      WHERE lock_waits.name = @name
        AND lock_waits.until > @now
      ORDER BY random()
      LIMIT 1
  );

-- name: OwnWaits :many
-- Reads the table, a small one.
SELECT name, freed
FROM lock_waits
WHERE waiter = @waiter;

-- name: ListWaits :many
-- Walks the primary key of lock_waits from the prefix on.
SELECT name, waiter, owner, calls, since
FROM lock_waits
WHERE until > @now
  AND name >= @prefix
  AND substr(name, 1, length(@prefix)) = @prefix
ORDER BY name, since, waiter
LIMIT @most;
