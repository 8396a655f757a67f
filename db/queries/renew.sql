-- name: RenewLeases :many
-- leases_pkey. Locks the leases in id order; waits for a reclaim that holds one,
-- and does not return it then, nor one of which a part was taken over (duration
-- 0, see ReclaimRuns). Touches no run. A lease that followed a beat does not any
-- more. Twice: harmless.
-- $1 duration in microseconds, $2 claims.
UPDATE durable.leases SET expires_at = now() + $1::bigint * interval '1 microsecond', duration = $1::bigint, beat = NULL
WHERE claim_id = ANY (ARRAY(
    SELECT l.claim_id FROM durable.leases l
    WHERE l.claim_id = ANY ($2::uuid[]) AND l.duration > 0
    ORDER BY l.claim_id FOR UPDATE))
RETURNING claim_id;

-- name: Beat :exec
-- beats_pkey. Renews, in one row, all leases that follow the beat. Locks it
-- first of all, in a statement of its own: whoever takes leases out of it has
-- the lock too, and what the statements after this one see is what they left.
-- Twice: harmless, but before is then what the first one wrote.
-- $1 beat, $2 duration in microseconds.
INSERT INTO durable.beats (id, expires_at, before, duration)
VALUES ($1::uuid, now() + $2::bigint * interval '1 microsecond', now(), $2::bigint)
ON CONFLICT (id) DO UPDATE SET before = beats.expires_at, expires_at = excluded.expires_at, duration = excluded.duration;

-- name: FollowBeat :exec
-- leases_pkey. Locks the leases in id order, and passes over those of which a
-- part was taken over, as RenewLeases does. After Beat, in its transaction: the
-- leases expire with it from now on. Twice: harmless.
-- $1 beat, $2 claims, $3 duration in microseconds.
UPDATE durable.leases SET beat = $1::uuid, expires_at = NULL, duration = $3::bigint
WHERE claim_id = ANY (ARRAY(
    SELECT l.claim_id FROM durable.leases l
    WHERE l.claim_id = ANY ($2::uuid[]) AND l.duration > 0
    ORDER BY l.claim_id FOR UPDATE));

-- name: LeaveBeat :exec
-- leases_pkey, beats_pkey. Locks as FollowBeat. After Beat, in its transaction:
-- the leases are not renewed; they expire when they did before. Twice: no rows.
-- $1 beat, $2 claims.
UPDATE durable.leases SET beat = NULL, (expires_at, duration) = (SELECT b.before, b.duration FROM durable.beats b WHERE b.id = $1::uuid)
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.leases l WHERE l.claim_id = ANY ($2::uuid[]) AND l.beat = $1::uuid ORDER BY l.claim_id FOR UPDATE));

-- name: Followers :many
-- leases_beat. No locks. After Beat, in its transaction: the leases it renewed.
SELECT l.claim_id FROM durable.leases l WHERE l.beat = $1::uuid;
