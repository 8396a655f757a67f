-- name: SettleSuccesses
-- ?1 finished_at, ?2 the ids, 16 bytes each, ?3 claim.
-- Served by the key of runs. Fenced by the claim: whose id does not come back
-- was not this claim's, or not any more. Twice: nothing comes back.
WITH RECURSIVE place (n) AS (SELECT 1 UNION ALL SELECT n + 16 FROM place WHERE n + 16 < length(?2))
UPDATE runs SET state = 2, finished_at = ?1
WHERE id IN (SELECT substr(?2, n, 16) FROM place) AND claim_id = ?3 AND state = 1
RETURNING id;

-- name: SettleNumbered
-- ?1 finished_at, ?2 claim, then runs by number, one of them as often as there is
-- room. SettleSuccesses for runs whose number is known, without RETURNING and a
-- subquery, which keep rows aside. A number belongs to another run once its own
-- is deleted, but never under the same claim. Twice: no row is counted.
UPDATE runs SET state = 2, finished_at = ?1
WHERE seq IN (:numbers:) AND claim_id = ?2 AND state = 1;
