-- name: ListSlots :many
-- Served by the primary key of locks.
SELECT slot, fence, claim_id, expires_at FROM locks WHERE name = @name ORDER BY slot;

-- name: GrantLock :exec
-- The caller has found the slot free in the same write transaction.
INSERT INTO locks (name, slot, fence, claim_id, acquired_at, expires_at, owner)
VALUES (@name, @slot, @fence, @claim_id, @acquired_at, @expires_at, @owner)
ON CONFLICT (name, slot) DO UPDATE SET fence = excluded.fence, claim_id = excluded.claim_id,
    acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, owner = excluded.owner;

-- name: RenewLock :execrows
-- Served by locks_claim. Expired or not: as long as the claim stands, nobody has taken the slot.
UPDATE locks SET expires_at = @expires_at WHERE claim_id = @claim_id;

-- name: ReleaseLock :execrows
-- Served by locks_claim. Fenced by the claim. Twice: no row is counted.
UPDATE locks SET claim_id = NULL, expires_at = @now WHERE claim_id = @claim_id AND name = @name;

-- name: DeleteOldLocks :exec
-- Served by locks_expiry; some at a time.
DELETE FROM locks WHERE (name, slot) IN (SELECT l.name, l.slot FROM locks l WHERE l.expires_at < @before LIMIT 100);

-- name: ListLocks :many
-- Walks the primary key of locks from the prefix on.
SELECT name, slot, owner, claim_id, fence, acquired_at, expires_at FROM locks
WHERE claim_id IS NOT NULL AND name >= @prefix AND substr(name, 1, length(@prefix)) = @prefix
ORDER BY name, slot LIMIT @most;

-- name: ForceReleaseLock :one
-- Served by the primary key of locks. Twice: no row.
UPDATE locks SET claim_id = NULL, expires_at = @now WHERE name = @name AND slot = @slot AND claim_id IS NOT NULL
RETURNING owner, fence;

-- name: InsertAudit :exec
INSERT INTO audit (at, actor, kind, subject, action, detail) VALUES (@at, @actor, 'lock', @subject, 'release', @detail);

-- name: ListForced :many
SELECT at, actor, subject, detail FROM audit WHERE kind = 'lock' AND action = 'release' ORDER BY id DESC LIMIT @most;
