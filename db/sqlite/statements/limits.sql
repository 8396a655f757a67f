-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: DropTurns
-- ?1 line, ?2 now, then gates, one of them as often as there is room. After DeleteTurns: one
-- turn that was taken answers for all that are due of its line and gate, so others go with it.
-- Index: turns_gate, then the primary key of each, up to so many. Idempotent: a repeat deletes
-- further ones, or none.
DELETE FROM turns
WHERE (line, due_at, gate) IN (
    SELECT other.line, other.due_at, other.gate
    FROM turns AS other
    WHERE other.line = ?1
      AND other.due_at <= ?2
      AND other.gate IN (:numbers:)
    LIMIT 1000
);

-- name: CheckLimits
-- ?1 now, ?2 gates, ?3 most of each sort, ?4 runs of the lines that are examined. What is not
-- as it has to be, in one snapshot: see the statement of PostgreSQL. Of a semaphore with some
-- room a line counts whose first run weighs no more than one. Index: permits from end to end, of
-- which there is one row for each run; waiting, skipped along the gates and probed once for
-- each lane; rounds. A line that waits in the round of a gate is looked at there.
WITH RECURSIVE gate_of (gate, n) AS (
    SELECT min(waiting.gate), 1
    FROM waiting
    UNION ALL
    SELECT
        (SELECT min(waiting.gate) FROM waiting WHERE waiting.gate > gate_of.gate),
        gate_of.n + 1
    FROM gate_of
    WHERE gate_of.gate IS NOT NULL
      AND gate_of.n < ?2
), held AS MATERIALIZED (
    SELECT
        permits.gate,
        sum(min(permits.weight, limits.most)) AS used,
        coalesce(max(runs.started_at), 0) AS latest,
        max(runs.id) AS run
    FROM permits
    JOIN limits ON limits.id = permits.gate >> 43
    LEFT JOIN runs ON runs.id = permits.run_id
    WHERE permits.expires_at = 0
       OR permits.expires_at > ?1
    GROUP BY permits.gate
), exceeded AS (
    SELECT held.gate, held.run, held.used
    FROM held
    JOIN limits ON limits.id = held.gate >> 43
    WHERE limits.state < 2
      AND held.used > limits.most
      AND held.latest > limits.hash_at
      AND NOT EXISTS (
          SELECT 1
          FROM audit
          WHERE audit.kind = 'limit'
            AND audit.subject = limits.name
            AND audit.at >= held.latest
      )
    LIMIT ?3
), orphans AS (
    SELECT permits.gate, permits.run_id AS run, permits.weight AS used
    FROM permits
    LEFT JOIN runs ON runs.id = permits.run_id
    WHERE CASE permits.until
        WHEN unicode('s') THEN permits.owner NOT IN (SELECT leases.claim_id FROM leases)
        WHEN unicode('f') THEN runs.state IS NULL OR runs.state >= 2
        WHEN unicode('k') THEN runs.state IS NULL OR runs.state IN (2, 5)
        ELSE false
    END
    LIMIT ?3
), misplaced AS (
    SELECT first.gate, first.run_id AS run, 0 AS used
    FROM (SELECT gate, lane, due_at, run_id FROM waiting LIMIT ?4) AS first
    LEFT JOIN runs ON runs.id = first.run_id
    WHERE runs.state IS NOT 0
       OR runs.lane IS NOT first.lane
       OR runs.due_at IS NOT first.due_at
       OR runs.limits IS NULL
    LIMIT ?3
), mixed AS (
    SELECT 0 AS gate, runs.id AS run, 0 AS used
    FROM (SELECT run_id FROM ready LIMIT ?4) AS first
    JOIN runs ON runs.id = first.run_id
    WHERE runs.limits IS NOT NULL
    LIMIT ?3
), heads AS MATERIALIZED (
    SELECT
        gate_of.gate,
        (
            SELECT waiting.run_id
            FROM waiting
            WHERE waiting.gate = gate_of.gate
              AND waiting.lane = limit_lanes.lane
              AND waiting.due_at <= ?1
            ORDER BY waiting.due_at, waiting.run_id
            LIMIT 1
        ) AS run
    FROM gate_of
    JOIN limit_lanes ON limit_lanes.limit_id = abs(gate_of.gate) >> 43
    WHERE gate_of.gate <> 0
      AND NOT EXISTS (
          SELECT 1
          FROM rounds
          WHERE rounds.line = gate_of.gate
            AND rounds.lane = limit_lanes.lane
            AND rounds.gate <> rounds.line
      )
    UNION ALL
    SELECT
        0,
        (
            SELECT waiting.run_id
            FROM waiting
            WHERE waiting.gate = 0
              AND waiting.due_at <= ?1
            LIMIT 1
        )
    UNION ALL
    SELECT
        rounds.gate,
        (
            SELECT waiting.run_id
            FROM waiting
            WHERE waiting.gate = rounds.line
              AND waiting.lane = rounds.lane
              AND waiting.due_at <= ?1
            ORDER BY waiting.due_at, waiting.run_id
            LIMIT 1
        )
    FROM (SELECT gate, line, lane FROM rounds WHERE gate <> line LIMIT ?4) AS rounds
), stuck AS (
    SELECT due.gate, due.run, coalesce(held.used, 0) AS used
    FROM (
        SELECT heads.gate, min(heads.run) AS run, min(instr(runs.limits, '*')) AS heavy
        FROM heads
        JOIN runs ON runs.id = heads.run
        GROUP BY heads.gate
    ) AS due
    LEFT JOIN limits ON limits.id = due.gate >> 43
    LEFT JOIN held ON held.gate = due.gate
    WHERE NOT EXISTS (SELECT 1 FROM turns WHERE turns.gate = due.gate)
      AND (
          due.gate <= 0
          OR limits.state >= 2
          OR limits.state = 0
              AND limits.most > 0
              AND (
                  limits.kind <> 1
                  OR held.used IS NULL
                  OR due.heavy = 0 AND held.used < limits.most
              )
      )
    LIMIT ?3
), found AS (
    SELECT 'exceeded' AS fault, gate, run, used FROM exceeded
    UNION ALL
    SELECT 'orphaned', gate, run, used FROM orphans
    UNION ALL
    SELECT 'misplaced', gate, run, used FROM misplaced
    UNION ALL
    SELECT 'misplaced', gate, run, used FROM mixed
    UNION ALL
    SELECT 'stuck', gate, run, used FROM stuck
)
SELECT
    found.fault, found.gate, found.run, found.used, coalesce(limits.name, ''),
    coalesce(limits.most, 0), runs.limits, limits.secret
FROM found
LEFT JOIN limits ON limits.id = abs(found.gate) >> 43
LEFT JOIN runs ON runs.id = found.run
ORDER BY 1, 2, 3;
