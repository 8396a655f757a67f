-- Statements that sqlc cannot read: UPDATE … FROM, row values, table functions.

-- name: ClaimStep
-- ?1 claim, ?2 now, ?3 worker's name, ?4 lane, ?5 earliest due_at, ?6 take, ?7 skip.
-- Served by the primary key of ready, then by the key of runs, one look-up for
-- each run. Rows of ready stay until UnreadyRange, so that every step of a claim
-- counts the line as it stood before the first one; what an earlier step took is
-- no longer pending. Rows come in no order.
UPDATE runs SET state = 1, claim_id = ?1, attempt = attempt + 1, started_at = ?2, worker = ?3, fence = max(fence + 1, ?2)
FROM (SELECT run_id FROM ready
      WHERE lane = ?4 AND due_at >= ?5 AND due_at <= ?2
        AND NOT EXISTS (SELECT 1 FROM lanes JOIN queues ON queues.name = lanes.queue WHERE lanes.id = abs(?4) AND queues.paused)
      ORDER BY due_at, run_id LIMIT ?6 OFFSET ?7) AS due
WHERE runs.id = due.run_id AND runs.state = 0
RETURNING id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, expires_at, trace, args;

-- name: UnreadyRange
-- ?1 lane, ?2 ?3 due_at and id of the first run taken, ?4 ?5 of the last.
-- Served by the primary key of ready. A step takes neighbours, so the range
-- holds nothing else.
DELETE FROM ready WHERE lane = ?1 AND (due_at, run_id) >= (?2, ?3) AND (due_at, run_id) <= (?4, ?5);
