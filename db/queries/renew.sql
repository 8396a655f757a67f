-- name: RenewLeases :many
-- leases_pkey. Locks the leases in id order; waits for a reclaim that holds one,
-- and does not return it then. Touches no run. Twice: harmless.
-- $1 duration in microseconds, $2 claims.
UPDATE durable.leases SET expires_at = now() + $1::bigint * interval '1 microsecond', duration = $1::bigint
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.leases l WHERE l.claim_id = ANY ($2::uuid[]) ORDER BY l.claim_id FOR UPDATE))
RETURNING claim_id;
