-- name: RenewLeases :many
-- Extends leases and returns them. A lease that followed a beat no longer does.
-- Index: leases_pkey. Locks: the leases in id order, and no run; waits for a reclaim that
-- has locked one, and then does not return it, nor one of which a part was reclaimed
-- (duration 0, see ReclaimRuns).
-- Idempotent: a repeat renews from a later instant.
UPDATE durable.leases
SET expires_at = now() + (@duration::bigint) * interval '1 microsecond',
    duration = @duration::bigint,
    beat = NULL
WHERE claim_id = ANY (ARRAY(
    SELECT held.claim_id
    FROM durable.leases held
    WHERE held.claim_id = ANY (@claim_ids::uuid[])
      AND held.duration > 0
    ORDER BY held.claim_id
    FOR UPDATE
))
RETURNING claim_id;

-- name: Beat :exec
-- Renews, in one row, all leases that follow the beat.
-- Index: beats_pkey. Locks: the beat, before anything else and in a statement of its own:
-- a transaction that takes leases out of it has this lock too, and the statements after
-- this one see what it has committed.
-- Idempotent: a repeat renews from a later instant, but before is then what the first
-- one wrote.
INSERT INTO durable.beats (id, expires_at, before, duration)
VALUES (
    @beat::uuid,
    now() + (@duration::bigint) * interval '1 microsecond',
    now(),
    @duration::bigint
)
ON CONFLICT (id) DO UPDATE
SET before = beats.expires_at,
    expires_at = excluded.expires_at,
    duration = excluded.duration;

-- name: FollowBeat :exec
-- After Beat, in its transaction: the leases expire with it from now on.
-- Index: leases_pkey. Locks: the leases in id order; skips those of which a part
-- was reclaimed, as RenewLeases does.
-- Idempotent: a repeat writes the same values.
UPDATE durable.leases
SET beat = @beat::uuid,
    expires_at = NULL,
    duration = @duration::bigint
WHERE claim_id = ANY (ARRAY(
    SELECT held.claim_id
    FROM durable.leases held
    WHERE held.claim_id = ANY (@claim_ids::uuid[])
      AND held.duration > 0
    ORDER BY held.claim_id
    FOR UPDATE
));

-- name: LeaveBeat :exec
-- After Beat, in its transaction: the leases are not renewed; they expire when they did
-- before. Index: leases_pkey, beats_pkey. Locks: as FollowBeat.
-- Idempotent: a repeat updates no rows.
-- $1 beat, $2 claim ids. (sqlc cannot name parameters beside an assignment to several
-- columns.)
UPDATE durable.leases
SET beat = NULL,
    (expires_at, duration) = (
        SELECT beats.before, beats.duration
        FROM durable.beats
        WHERE beats.id = $1::uuid
    )
WHERE claim_id = ANY (ARRAY(
    SELECT held.claim_id
    FROM durable.leases held
    WHERE held.claim_id = ANY ($2::uuid[])
      AND held.beat = $1::uuid
    ORDER BY held.claim_id
    FOR UPDATE
));

-- name: Followers :many
-- After Beat, in its transaction: the leases that it renewed.
-- Index: leases_beat. Locks: none.
SELECT leases.claim_id
FROM durable.leases
WHERE leases.beat = @beat::uuid;
