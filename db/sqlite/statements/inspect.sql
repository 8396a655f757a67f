-- name: CountRuns
-- All, pending, running, dead, cancelled, in one snapshot. No table is read
-- whole but the narrow ones: the key of runs, ready, problems, and the runs of
-- living leases; what succeeded is the rest.
WITH RECURSIVE held (claim_id, ids, n) AS (
    SELECT claim_id, run_ids, 1 FROM leases
    UNION ALL
    SELECT claim_id, ids, n + 16 FROM held WHERE n + 16 < length(ids)
), problem (state) AS (
    SELECT runs.state FROM problems CROSS JOIN runs ON runs.id = problems.run_id
)
SELECT (SELECT count(*) FROM runs),
    (SELECT count(*) FROM ready),
    (SELECT count(*) FROM held CROSS JOIN runs ON runs.id = substr(held.ids, held.n, 16) AND runs.claim_id = held.claim_id AND runs.state = 1),
    (SELECT count(*) FROM problem WHERE state = 4),
    (SELECT count(*) FROM problem WHERE state = 5);
