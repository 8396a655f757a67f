-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: SettleSuccesses
-- ?1 finished_at, ?2 the ids, 16 bytes each, ?3 claim. Index: the key of runs. Fenced by
-- the claim: a run whose id is not returned was not this claim's, or not any more.
-- Idempotent: a repeat returns nothing.
WITH RECURSIVE places (place) AS (
    SELECT 1
    UNION ALL
    SELECT place + 16
    FROM places
    WHERE place + 16 < length(?2)
)
UPDATE runs
SET state = 2,
    finished_at = ?1
WHERE id IN (SELECT substr(?2, place, 16) FROM places)
  AND claim_id = ?3
  AND state = 1
RETURNING id;

-- name: SettleNumbered
-- ?1 finished_at, ?2 claim, then runs by number, one of them as often as there is room.
-- SettleSuccesses for runs whose number is known, without RETURNING and a subquery, which
-- keep rows aside. A number belongs to another run once its own is deleted, but never
-- under the same claim. Idempotent: a repeat counts no row.
UPDATE runs
SET state = 2,
    finished_at = ?1
WHERE seq IN (:numbers:)
  AND claim_id = ?2
  AND state = 1;
