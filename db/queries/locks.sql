-- name: AcquireLock :many
-- Takes one free slot of a named lock, the claim's own first, or says when the next may
-- become free. No call waits, and no call asks slot by slot.
-- Index: locks_pkey, the rows of one name. Locks: one row with SKIP LOCKED.
-- A slot may be granted when the slots below it and the held ones above it are fewer
-- than the cap: with the lowest free slot that is the same as counting the holders, and
-- it stays true whatever others are granted concurrently, also while slots above a
-- lowered cap drain. The fence is the next number above all of the name that leaves the
-- slot as the remainder of a division by 1000: two slots granted concurrently, which
-- cannot see each other, never get the same fence, and no grant waits for another.
-- Idempotent: a repeat returns the same slot, extended.
WITH slots AS MATERIALIZED (
    SELECT
        slot,
        fence,
        expires_at,
        claim_id IS NOT NULL AND expires_at > now() AS held
    FROM durable.locks
    WHERE name = @name::text
), free_slot AS MATERIALIZED (
    SELECT
        locks.slot,
        coalesce(locks.claim_id <> @claim_id::uuid, false) AS expired,
        greatest(
            locks.fence,
            (SELECT max(slots.fence) FROM slots),
            (extract(epoch FROM now()) * 1000000)::bigint
        ) AS above
    FROM durable.locks
    WHERE locks.name = @name::text
      AND (
          locks.claim_id = @claim_id::uuid
          OR locks.slot < @cap::int
              AND (locks.claim_id IS NULL OR locks.expires_at <= now())
              AND locks.slot + (
                  SELECT count(*)
                  FROM slots
                  WHERE slots.slot > locks.slot
                    AND slots.held
              ) < @cap::int
      )
    ORDER BY locks.claim_id = @claim_id::uuid DESC NULLS LAST, locks.slot
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), granted AS (
    UPDATE durable.locks
    SET fence = CASE
            WHEN locks.claim_id = @claim_id::uuid THEN locks.fence
            ELSE free_slot.above + 1 + (1000 + locks.slot - (free_slot.above + 1) % 1000) % 1000
        END,
        acquired_at = CASE
            WHEN locks.claim_id = @claim_id::uuid THEN locks.acquired_at
            ELSE now()
        END,
        expires_at = now() + (@duration::bigint) * interval '1 microsecond',
        claim_id = @claim_id::uuid,
        owner = @owner::text
    FROM free_slot
    WHERE locks.name = @name::text
      AND locks.slot = free_slot.slot
    RETURNING locks.slot, locks.fence, free_slot.expired
)
SELECT granted.slot, granted.fence, granted.expired, counted.present, counted.free_in
FROM (
    SELECT
        count(*) FILTER (WHERE slots.slot < @cap::int)::int AS present,
        coalesce(
            (
                extract(epoch FROM min(slots.expires_at) FILTER (WHERE slots.held) - now())
                * 1000000
            )::bigint,
            0
        )::bigint AS free_in
    FROM slots
) counted
LEFT JOIN granted ON true;

-- name: InsertLocks :exec
-- The rows of a name that lacks some. Index: locks_pkey. Locks: only what it inserts;
-- waits for a transaction that inserts the same.
-- Idempotent: a repeat inserts nothing.
INSERT INTO durable.locks (name, slot)
SELECT @name::text, generate_series(0, (@cap::int) - 1)
ON CONFLICT DO NOTHING;

-- name: DeleteOldLocks :exec
-- Rows that have been free for a week, some at a time.
-- Index: locks_expiry. Locks: the rows with SKIP LOCKED.
-- Idempotent: a repeat deletes further rows, or none.
DELETE FROM durable.locks
WHERE (name, slot) IN (
    SELECT old.name, old.slot
    FROM durable.locks old
    WHERE old.expires_at < now() - interval '7 days'
    ORDER BY old.expires_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
);

-- name: RenewLocks :many
-- Not the rows that refuse claims, which have no name: see RefuseLock.
-- Index: locks_claim. Locks: the rows in the claims' order.
-- Idempotent: a repeat renews from a later instant.
UPDATE durable.locks
SET expires_at = now() + (@duration::bigint) * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(
    SELECT held.claim_id
    FROM durable.locks held
    WHERE held.claim_id = ANY (@claim_ids::uuid[])
      AND held.name <> ''
    ORDER BY held.claim_id
    FOR UPDATE
))
RETURNING claim_id;

-- name: RenewFreeLocks :many
-- RenewLocks when a transaction holds one of the rows: passes those over, and tells
-- which of the claims are there, so that one that is not renewed is not taken for lost.
-- Index: locks_claim. Locks: the rows with SKIP LOCKED.
-- Idempotent: a repeat renews from a later instant.
WITH free AS MATERIALIZED (
    SELECT held.claim_id
    FROM durable.locks held
    WHERE held.claim_id = ANY (@claim_ids::uuid[])
      AND held.name <> ''
    ORDER BY held.claim_id
    FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE durable.locks
    SET expires_at = now() + (@duration::bigint) * interval '1 microsecond'
    WHERE claim_id = ANY (ARRAY(SELECT free.claim_id FROM free))
    RETURNING claim_id
)
SELECT
    present.claim_id,
    (renewed.claim_id IS NOT NULL)::boolean AS renewed
FROM durable.locks present
LEFT JOIN renewed ON renewed.claim_id = present.claim_id
WHERE present.claim_id = ANY (@claim_ids::uuid[])
  AND present.name <> '';

-- name: ReleaseLock :one
-- Frees a slot and, when it commits, notifies any one of those that have recorded that
-- they wait: the server serializes commits that notify, and most of the time none waits.
-- Index: locks_claim, lock_waits_pkey. Locks: the row. Fenced by the claim.
-- Idempotent: a repeat frees nothing.
WITH released AS (
    UPDATE durable.locks
    SET claim_id = NULL,
        expires_at = now()
    WHERE claim_id = @claim::uuid
      AND name = @name::text
    RETURNING name
), next_waiter AS (
    SELECT lock_waits.waiter
    FROM durable.lock_waits
    JOIN released ON released.name = lock_waits.name
    WHERE lock_waits.until > now()
    ORDER BY random()
    LIMIT 1
)
SELECT
    (SELECT count(*) FROM released)::int AS freed,
    (
        SELECT count(pg_notify(@channel::text, next_waiter.waiter::text || ' ' || @name::text))
        FROM next_waiter
    )::int AS notified;

-- name: RefuseLock :many
-- Keeps a claim whose answer was lost from being granted later, as RefuseClaim does for
-- runs: a row without a name, which no lock can have, takes the claim. Waits for an
-- acquisition of this claim that is under way; no row is returned where that has taken a
-- slot, or where the claim is refused already. The slot only tells such rows apart; one
-- that is taken violates locks_pkey (23505).
-- Index: locks_claim, locks_pkey. Locks: only what it inserts.
-- Idempotent: a repeat finds the row and inserts nothing.
INSERT INTO durable.locks (name, slot, claim_id, expires_at)
VALUES (
    '',
    (random() * 2147483647)::int,
    @claim_id::uuid,
    now() + (@duration::bigint) * interval '1 microsecond'
)
ON CONFLICT (claim_id) WHERE claim_id IS NOT NULL DO NOTHING
RETURNING claim_id;

-- name: DeleteRefusedLocks :exec
-- Rows of RefuseLock whose time is over, some at a time. There are few of them.
-- Index: locks_pkey. Locks: the rows with SKIP LOCKED.
-- Idempotent: a repeat deletes further rows, or none.
DELETE FROM durable.locks
WHERE (name, slot) IN (
    SELECT refused.name, refused.slot
    FROM durable.locks refused
    WHERE refused.name = ''
      AND refused.expires_at < now()
    LIMIT 100
    FOR UPDATE SKIP LOCKED
);

-- name: ListLocks :many
-- Index: locks_pkey, from the prefix on. Locks: none.
SELECT
    name, slot, owner, claim_id, fence, acquired_at, expires_at,
    (expires_at <= now())::boolean AS expired
FROM durable.locks
WHERE claim_id IS NOT NULL
  AND name <> ''
  AND starts_with(name, @prefix::text)
ORDER BY name, slot
LIMIT @most;

-- name: ForceReleaseLock :one
-- Releases a slot for an operator and records it in the audit log, in one statement.
-- Notifies as ReleaseLock does.
-- Index: locks_pkey, lock_waits_pkey. Locks: the row; waits for a renewal that has it.
-- Idempotent: a repeat frees and records nothing.
WITH held AS (
    SELECT locks.name, locks.slot, locks.owner, locks.fence
    FROM durable.locks
    WHERE locks.name = @name::text
      AND locks.slot = @slot::int
      AND locks.claim_id IS NOT NULL
    FOR UPDATE
), released AS (
    UPDATE durable.locks
    SET claim_id = NULL,
        expires_at = now()
    FROM held
    WHERE locks.name = held.name
      AND locks.slot = held.slot
    RETURNING held.name, held.slot, held.owner, held.fence
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT
        @actor::text,
        'lock',
        released.name,
        'release',
        json_build_object(
            'slot', released.slot,
            'owner', released.owner,
            'fence', released.fence,
            'reason', @reason::text
        )
    FROM released
), next_waiter AS (
    SELECT lock_waits.waiter
    FROM durable.lock_waits
    JOIN released ON released.name = lock_waits.name
    WHERE lock_waits.until > now()
    ORDER BY random()
    LIMIT 1
)
SELECT
    (SELECT count(*) FROM released)::int AS freed,
    (
        SELECT count(pg_notify(@channel::text, next_waiter.waiter::text || ' ' || @name::text))
        FROM next_waiter
    )::int AS notified;

-- name: NoteWait :exec
-- Index: lock_waits_pkey. Locks: a row that only its own process writes.
-- Idempotent: a repeat extends the wait.
INSERT INTO durable.lock_waits (name, waiter, until, calls, owner)
VALUES (
    @name,
    @waiter,
    now() + (@duration::bigint) * interval '1 microsecond',
    @calls,
    @owner
)
ON CONFLICT (name, waiter) DO UPDATE
SET until = excluded.until,
    calls = excluded.calls,
    since = CASE WHEN lock_waits.until > now() THEN lock_waits.since ELSE now() END;

-- name: DeleteWait :exec
-- Index: lock_waits_pkey. Idempotent: a repeat deletes no row.
DELETE FROM durable.lock_waits
WHERE name = @name
  AND waiter = @waiter;

-- name: DeleteLapsedWaits :exec
-- Index: none; reads the table, a small one. Locks: the rows with SKIP LOCKED.
-- Idempotent: a repeat deletes further rows, or none.
DELETE FROM durable.lock_waits
WHERE (name, waiter) IN (
    SELECT lapsed.name, lapsed.waiter
    FROM durable.lock_waits lapsed
    WHERE lapsed.until < now() - interval '1 minute'
    LIMIT 100
    FOR UPDATE SKIP LOCKED
);

-- name: ListWaits :many
-- Index: lock_waits_pkey, from the prefix on. Locks: none.
SELECT name, waiter, owner, calls, since
FROM durable.lock_waits
WHERE until > now()
  AND starts_with(name, @prefix::text)
ORDER BY name, since, waiter
LIMIT @most;

-- name: ListForced :many
-- Index: audit_pkey, backwards. Locks: none.
SELECT at, actor, subject, detail
FROM durable.audit
WHERE kind = 'lock'
  AND action = 'release'
ORDER BY id DESC
LIMIT @most;
