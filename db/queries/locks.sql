-- name: AcquireLock :many
-- locks_pkey, the rows of one name. Takes one free row with SKIP LOCKED, the
-- claim's own first, so nobody waits and nobody asks slot by slot. A slot may be
-- granted when the slots below it and the held ones above it are fewer than the
-- cap: with the lowest free slot that is the same as counting the holders, and
-- it stays true whatever others are granted at the same moment, also while slots
-- above a lowered cap drain. The fence is the next number above all of the name
-- that leaves the slot as the rest of a division by 1000: two slots granted at
-- the same moment, which see nothing of each other, cannot meet, and no grant
-- waits for another. Twice: the same slot, extended.
-- $1 name, $2 cap, $3 claim, $4 owner, $5 duration in microseconds.
WITH s AS MATERIALIZED (
    SELECT slot, fence, expires_at, claim_id IS NOT NULL AND expires_at > now() AS held FROM durable.locks WHERE name = $1::text
), f AS MATERIALIZED (
    SELECT l.slot, coalesce(l.claim_id <> $3::uuid, false) AS expired,
           greatest(l.fence, (SELECT max(s.fence) FROM s), (extract(epoch FROM now()) * 1000000)::bigint) AS above
    FROM durable.locks l
    WHERE l.name = $1::text AND (l.claim_id = $3::uuid
        OR l.slot < $2::int AND (l.claim_id IS NULL OR l.expires_at <= now())
           AND l.slot + (SELECT count(*) FROM s WHERE s.slot > l.slot AND s.held) < $2::int)
    ORDER BY l.claim_id = $3::uuid DESC NULLS LAST, l.slot LIMIT 1 FOR UPDATE SKIP LOCKED
), u AS (
    UPDATE durable.locks l SET
        fence = CASE WHEN l.claim_id = $3::uuid THEN l.fence
                     ELSE f.above + 1 + (1000 + l.slot - (f.above + 1) % 1000) % 1000 END,
        acquired_at = CASE WHEN l.claim_id = $3::uuid THEN l.acquired_at ELSE now() END,
        expires_at = now() + $5::bigint * interval '1 microsecond', claim_id = $3::uuid, owner = $4::text
    FROM f WHERE l.name = $1::text AND l.slot = f.slot
    RETURNING l.slot, l.fence, f.expired
)
SELECT u.slot, u.fence, u.expired, c.present, c.free_in
FROM (SELECT count(*) FILTER (WHERE s.slot < $2::int)::int AS present,
             coalesce((extract(epoch FROM min(s.expires_at) FILTER (WHERE s.held) - now()) * 1000000)::bigint, 0)::bigint AS free_in FROM s) c
LEFT JOIN u ON true;

-- name: InsertLocks :exec
-- locks_pkey. The rows of a name that lacks some. Waits for another who inserts
-- the same. Twice: nothing. $1 name, $2 cap.
INSERT INTO durable.locks (name, slot) SELECT $1::text, generate_series(0, $2::int - 1)
ON CONFLICT DO NOTHING;

-- name: DeleteOldLocks :exec
-- locks_expiry. Rows that nobody has wanted for a week, some at a time, with
-- SKIP LOCKED. Twice: fewer rows.
DELETE FROM durable.locks WHERE (name, slot) IN (
    SELECT l.name, l.slot FROM durable.locks l WHERE l.expires_at < now() - interval '7 days'
    ORDER BY l.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED);

-- name: RenewLocks :many
-- locks_claim. Locks the rows in the claims' order. Twice: harmless.
-- $1 duration in microseconds, $2 claims.
UPDATE durable.locks SET expires_at = now() + $1::bigint * interval '1 microsecond'
WHERE claim_id = ANY (ARRAY(SELECT l.claim_id FROM durable.locks l WHERE l.claim_id = ANY ($2::uuid[]) ORDER BY l.claim_id FOR UPDATE))
RETURNING claim_id;

-- name: ReleaseLock :one
-- locks_claim, lock_waits_pkey. Fenced by the claim. Notifies, when it commits,
-- one of those who have noted that they wait, any: commits that notify are
-- serialised by the server, and nobody waits most of the time. Twice: no rows.
WITH u AS (
    UPDATE durable.locks SET claim_id = NULL, expires_at = now()
    WHERE claim_id = @claim::uuid AND name = @name::text RETURNING name
), w AS (
    SELECT l.waiter FROM durable.lock_waits l JOIN u ON u.name = l.name WHERE l.until > now() ORDER BY random() LIMIT 1
)
SELECT (SELECT count(*) FROM u)::int AS freed,
       (SELECT count(pg_notify(@channel::text, w.waiter::text || ' ' || @name::text)) FROM w)::int AS told;

-- name: ListLocks :many
-- locks_pkey, from the prefix on. No locks.
SELECT name, slot, owner, claim_id, fence, acquired_at, expires_at, (expires_at <= now())::boolean AS expired
FROM durable.locks WHERE claim_id IS NOT NULL AND starts_with(name, @prefix::text)
ORDER BY name, slot LIMIT @most;

-- name: ForceReleaseLock :one
-- locks_pkey; waits for whoever renews it at this moment. The deed and its
-- record are one statement. Notifies as ReleaseLock does. Twice: no rows.
WITH x AS (
    SELECT l.name, l.slot, l.owner, l.fence FROM durable.locks l
    WHERE l.name = @name::text AND l.slot = @slot::int AND l.claim_id IS NOT NULL FOR UPDATE
), u AS (
    UPDATE durable.locks l SET claim_id = NULL, expires_at = now() FROM x WHERE l.name = x.name AND l.slot = x.slot
    RETURNING x.name, x.slot, x.owner, x.fence
), a AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT @actor::text, 'lock', u.name, 'release',
           json_build_object('slot', u.slot, 'owner', u.owner, 'fence', u.fence, 'reason', @reason::text) FROM u
), w AS (
    SELECT l.waiter FROM durable.lock_waits l JOIN u ON u.name = l.name WHERE l.until > now() ORDER BY random() LIMIT 1
)
SELECT (SELECT count(*) FROM u)::int AS freed,
       (SELECT count(pg_notify(@channel::text, w.waiter::text || ' ' || @name::text)) FROM w)::int AS told;

-- name: NoteWait :exec
-- lock_waits_pkey; the row is its process's own. Twice: it lasts a little longer.
INSERT INTO durable.lock_waits (name, waiter, until, calls, owner)
VALUES (@name, @waiter, now() + (@duration::bigint) * interval '1 microsecond', @calls, @owner)
ON CONFLICT (name, waiter) DO UPDATE SET until = excluded.until, calls = excluded.calls,
    since = CASE WHEN lock_waits.until > now() THEN lock_waits.since ELSE now() END;

-- name: DeleteWait :exec
-- lock_waits_pkey. Twice: no row.
DELETE FROM durable.lock_waits WHERE name = @name AND waiter = @waiter;

-- name: DeleteLapsedWaits :exec
-- Reads the table, a small one. With SKIP LOCKED. Twice: fewer rows.
DELETE FROM durable.lock_waits WHERE (name, waiter) IN (
    SELECT l.name, l.waiter FROM durable.lock_waits l WHERE l.until < now() - interval '1 minute' LIMIT 100 FOR UPDATE SKIP LOCKED);

-- name: ListWaits :many
-- lock_waits_pkey, from the prefix on. No locks.
SELECT name, waiter, owner, calls, since FROM durable.lock_waits
WHERE until > now() AND starts_with(name, @prefix::text) ORDER BY name, since, waiter LIMIT @most;

-- name: ListForced :many
-- audit_pkey, backwards. No locks.
SELECT at, actor, subject, detail FROM durable.audit WHERE kind = 'lock' AND action = 'release' ORDER BY id DESC LIMIT @most;
