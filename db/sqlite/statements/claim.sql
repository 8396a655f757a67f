-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
--
-- Statements that sqlc cannot read: UPDATE … FROM, row values, table functions.

-- name: ClaimStep
-- ?1 now, ?2 lane, ?3 earliest due_at, ?4 take, ?5 skip. The runs to be claimed. Index:
-- the primary key of ready, then the key of runs, one look-up for each run. Rows of
-- ready stay until UnreadyRange, so that every step of a claim counts the line as it
-- stood before the first one; what an earlier step took is no longer pending.
SELECT
    runs.seq, id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    expires_at, trace, key, schedule, occurs_at, tags, metadata, args,
    links
FROM (
    SELECT run_id
    FROM ready
    WHERE lane = ?2
      AND due_at >= ?3
      AND due_at <= ?1
      AND NOT EXISTS (
          SELECT 1
          FROM lanes
          JOIN queues ON queues.name = lanes.queue
          WHERE lanes.id = abs(?2)
            AND queues.paused
      )
    ORDER BY due_at, run_id
    LIMIT ?4
    OFFSET ?5
) AS due
CROSS JOIN runs ON runs.id = due.run_id
WHERE runs.state = 0;

-- name: StartRuns
-- ?1 claim, ?2 now, ?3 worker's name, then runs by number, one of them as often as there
-- is room. In the transaction of ClaimStep. Without RETURNING and a subquery, which keep
-- rows aside: each is looked up and rewritten immediately.
UPDATE runs
SET state = 1,
    claim_id = ?1,
    attempt = attempt + 1,
    started_at = ?2,
    worker = ?3,
    fence = max(fence + 1, ?2)
WHERE seq IN (:numbers:)
  AND state = 0;

-- name: UnreadyRange
-- ?1 lane, ?2 ?3 due_at and id of the first run taken, ?4 ?5 of the last. Index: the
-- primary key of ready. A step takes neighbours, so the range holds nothing else.
DELETE FROM ready
WHERE lane = ?1
  AND (due_at, run_id) >= (?2, ?3)
  AND (due_at, run_id) <= (?4, ?5);

-- name: DropUnready
-- ?1 now, ?2 lane, ?3 earliest due_at, ?4 take, ?5 skip, of a step of a claim that got
-- nothing. Index: the primary key of ready, then the key of runs. Rows of ready whose
-- run is not pending, which only a change by hand can leave.
DELETE FROM ready
WHERE lane = ?2
  AND (lane, due_at, run_id) IN (
      SELECT due.lane, due.due_at, due.run_id
      FROM (
          SELECT lane, due_at, run_id
          FROM ready
          WHERE lane = ?2
            AND due_at >= ?3
            AND due_at <= ?1
          ORDER BY due_at, run_id
          LIMIT ?4
          OFFSET ?5
      ) AS due
      WHERE NOT EXISTS (
            SELECT 1
            FROM runs
            WHERE runs.id = due.run_id
              AND runs.state = 0
        )
  )
RETURNING run_id;
