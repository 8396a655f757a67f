-- name: CheckLimits :many
-- What is not as it has to be, in one snapshot, so many of each sort: a gate of which more
-- is held than there is, by permits that are younger than the last change of its limit; a
-- permit without its lease, or whose run has ended; a row of waiting that is not the place of
-- a pending run; a limited run in ready; a line of which no row of limit_lanes has workers
-- read it; and a gate that has no turn, but room for the first
-- run of a lane that is due. What is behind a heavier run of its lane needs no turn: the
-- leaving of that run inserts one.
-- Index: permits, one row per claim; waiting and ready, their first @examined rows; then
-- waiting_order skipped along the gates, @gates of them, and along the lines, as many.
-- Locks: none.
WITH RECURSIVE gate_of (gate, n) AS (
    (
        SELECT waiting.gate, 1
        FROM durable.waiting
        ORDER BY waiting.gate
        LIMIT 1
    )
    UNION ALL
    SELECT
        (
            SELECT waiting.gate
            FROM durable.waiting
            WHERE waiting.gate > gate_of.gate
            ORDER BY waiting.gate
            LIMIT 1
        ),
        gate_of.n + 1
    FROM gate_of
    WHERE gate_of.gate IS NOT NULL
      AND gate_of.n < @gates::int
), line_of (gate, lane, n) AS (
    (
        SELECT waiting.gate, waiting.lane, 1
        FROM durable.waiting
        ORDER BY waiting.gate, waiting.lane
        LIMIT 1
    )
    UNION ALL
    SELECT next.gate, next.lane, line_of.n + 1
    FROM line_of
    CROSS JOIN LATERAL (
        SELECT waiting.gate, waiting.lane
        FROM durable.waiting
        WHERE (waiting.gate, waiting.lane) > (line_of.gate, line_of.lane)
        ORDER BY waiting.gate, waiting.lane
        LIMIT 1
    ) next
    WHERE line_of.n < @gates::int
), held AS MATERIALIZED (
    SELECT
        permits.gate,
        sum(
            CASE
                WHEN permits.k = pg_catalog.cardinality(permits.runs) THEN permits.k
                WHEN permits.runs = '{}' THEN least(permits.k, limits.most)
                ELSE (
                    SELECT coalesce(
                        sum(
                            least(
                                coalesce(
                                    runs.weights[
                                        pg_catalog.array_position(runs.gates, permits.gate)
                                    ],
                                    1
                                ),
                                limits.most
                            )
                        ),
                        0
                    )
                    FROM durable.runs
                    WHERE runs.id = ANY (permits.runs)
                )
            END
        ) AS used,
        max(permits.at) AS latest
    FROM durable.permits
    JOIN durable.limits ON limits.id = durable.limit_of(permits.gate)
    WHERE permits.expires_at IS NULL
       OR permits.expires_at > now()
    GROUP BY permits.gate
), exceeded AS (
    SELECT
        held.gate,
        (
            SELECT min(permits.runs[1]::text)
            FROM durable.permits
            WHERE permits.gate = held.gate
        ) AS run,
        held.used::bigint AS used
    FROM held
    JOIN durable.limits ON limits.id = durable.limit_of(held.gate)
    WHERE durable.limit_applies(limits.state)
      AND held.used > limits.most
      AND held.latest > limits.hash_at
      AND NOT EXISTS (
          SELECT
          FROM durable.audit
          WHERE audit.kind = 'limit'
            AND audit.subject = limits.name
            AND audit.at >= held.latest
      )
    LIMIT @most
), orphans AS (
    SELECT permits.gate, coalesce(permits.runs[1], permits.owner)::text AS run, permits.k AS used
    FROM durable.permits
    WHERE CASE permits.until
        WHEN durable.until_settled() THEN NOT EXISTS (
            SELECT
            FROM durable.leases
            WHERE leases.claim_id = permits.owner
        )
        WHEN durable.until_expires() THEN false
        ELSE NOT EXISTS (
            SELECT
            FROM durable.runs
            WHERE runs.id = permits.owner
              AND (
                  durable.is_unfinished(runs.state)
                  OR permits.until = durable.until_finished_or_revived()
                  AND runs.state = durable.dead()
              )
        )
    END
    LIMIT @most
), misplaced AS (
    SELECT first.gate, first.run_id::text AS run, 0 AS used
    FROM (
        SELECT waiting.gate, waiting.lane, waiting.due_at, waiting.run_id
        FROM durable.waiting
        LIMIT @examined
    ) first
    WHERE NOT EXISTS (
        SELECT
        FROM durable.runs
        WHERE runs.id = first.run_id
          AND runs.state = durable.pending()
          AND runs.lane = first.lane
          AND runs.due_at = first.due_at
          AND first.gate = ANY (runs.gates || durable.all_permits()::bigint)
    )
    LIMIT @most
), mixed AS (
    SELECT runs.gates[1] AS gate, runs.id::text AS run, 0 AS used
    FROM (SELECT ready.run_id FROM durable.ready LIMIT @examined) first
    JOIN durable.runs ON runs.id = first.run_id
    WHERE runs.gates IS NOT NULL
    LIMIT @most
), unread AS (
    SELECT
        line_of.gate,
        (
            SELECT waiting.run_id::text
            FROM durable.waiting
            WHERE waiting.gate = line_of.gate
              AND waiting.lane = line_of.lane
            ORDER BY waiting.due_at, waiting.run_id
            LIMIT 1
        ) AS run,
        0 AS used
    FROM line_of
    WHERE line_of.gate <> durable.all_permits()
      AND NOT EXISTS (
          SELECT
          FROM durable.limit_lanes
          WHERE limit_lanes.limit_id = durable.limit_of(abs(line_of.gate))
            AND limit_lanes.lane = line_of.lane
      )
    LIMIT @most
), stuck AS (
    SELECT gate_of.gate, first.run, coalesce(held.used, 0)::bigint AS used
    FROM gate_of
    LEFT JOIN durable.limits ON limits.id = durable.limit_of(gate_of.gate)
    LEFT JOIN held ON held.gate = gate_of.gate
    CROSS JOIN LATERAL (
        SELECT min(line.run_id::text) AS run, min(line.need) AS need
        FROM (
            SELECT DISTINCT ON (due.lane)
                due.run_id,
                CASE
                    WHEN due.more THEN (
                        SELECT coalesce(
                            runs.weights[pg_catalog.array_position(runs.gates, gate_of.gate)],
                            1
                        )
                        FROM durable.runs
                        WHERE runs.id = due.run_id
                    )
                    ELSE 1
                END AS need
            FROM (
                SELECT waiting.lane, waiting.due_at, waiting.run_id, waiting.more
                FROM durable.waiting
                WHERE waiting.gate = gate_of.gate
                  AND waiting.due_at <= now()
                  AND NOT EXISTS (
                      SELECT
                      FROM durable.rounds
                      WHERE rounds.line = waiting.gate
                        AND rounds.lane = waiting.lane
                        AND rounds.gate <> waiting.gate
                  )
                ORDER BY waiting.lane, waiting.due_at, waiting.run_id
                LIMIT 100
            ) due
            ORDER BY due.lane, due.due_at, due.run_id
        ) line
    ) first
    WHERE gate_of.gate IS NOT NULL
      AND first.run IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM durable.turns
          WHERE turns.gate = gate_of.gate
      )
      AND (
          gate_of.gate <= 0
          OR durable.limit_is_off(limits.state)
          OR limits.state = durable.limit_active() AND limits.most > 0 AND (
              limits.kind <> durable.limit_semaphore()
              OR least(first.need, limits.most) <= limits.most - coalesce(held.used, 0)
          )
      )
    LIMIT @most
), held_up AS (
    SELECT entry.gate, entry.run, coalesce(held.used, 0)::bigint AS used
    FROM (
        SELECT
            rounds.gate,
            first.run_id::text AS run,
            coalesce(
                runs.weights[pg_catalog.array_position(runs.gates, rounds.gate)],
                1
            ) AS need
        FROM (
            SELECT placed.gate, placed.line, placed.lane
            FROM durable.rounds placed
            WHERE placed.line <> placed.gate
              AND NOT EXISTS (
                  SELECT
                  FROM durable.turns
                  WHERE turns.gate = placed.gate
              )
            LIMIT @examined
        ) rounds
        CROSS JOIN LATERAL (
            SELECT waiting.run_id
            FROM durable.waiting
            WHERE waiting.gate = rounds.line
              AND waiting.lane = rounds.lane
              AND waiting.due_at <= now()
            ORDER BY waiting.due_at, waiting.run_id
            LIMIT 1
        ) first
        JOIN durable.runs ON runs.id = first.run_id
    ) entry
    JOIN durable.limits ON limits.id = durable.limit_of(entry.gate)
    LEFT JOIN held ON held.gate = entry.gate
    WHERE durable.limit_is_off(limits.state)
       OR limits.state = durable.limit_active() AND limits.most > 0 AND (
           limits.kind <> durable.limit_semaphore()
           OR least(entry.need, limits.most) <= limits.most - coalesce(held.used, 0)
       )
    LIMIT @most
), found AS (
    SELECT 'exceeded' AS fault, exceeded.gate, exceeded.run, exceeded.used FROM exceeded
    UNION ALL
    SELECT 'orphaned', orphans.gate, orphans.run, orphans.used FROM orphans
    UNION ALL
    SELECT 'misplaced', misplaced.gate, misplaced.run, misplaced.used FROM misplaced
    UNION ALL
    SELECT 'misplaced', mixed.gate, mixed.run, mixed.used FROM mixed
    UNION ALL
    SELECT 'unread', unread.gate, unread.run, unread.used FROM unread
    UNION ALL
    SELECT 'stuck', stuck.gate, stuck.run, stuck.used FROM stuck
    UNION ALL
    SELECT 'stuck', held_up.gate, held_up.run, held_up.used FROM held_up
)
SELECT
    found.fault::text AS fault,
    found.gate::bigint AS gate,
    coalesce(found.run, '')::text AS run,
    found.used::bigint AS used,
    coalesce(limits.name, '')::text AS name,
    coalesce(limits.most, 0)::int AS most,
    coalesce(gates.key, '')::text AS key
FROM found
LEFT JOIN durable.limits ON limits.id = durable.limit_of(abs(found.gate))
LEFT JOIN durable.gates ON gates.gate = found.gate
ORDER BY 1, 2, 3;

-- name: MendTurns :execrows
-- A turn for runs that are due in the lines of gates that CheckLimits has found stuck, on
-- each of their lanes, or wait in their rounds. Index: waiting_order, rounds_order. Locks: only
-- what it inserts.
-- Idempotent: a repeat adds turns that find nothing to do.
INSERT INTO durable.turns (line, due_at, gate)
SELECT DISTINCT first.lane, clock_timestamp(), first.gate
FROM (
    (
        SELECT waiting.lane, waiting.gate
        FROM durable.waiting
        WHERE waiting.gate = ANY (@gates::bigint[])
          AND waiting.due_at <= now()
        LIMIT @most
    )
    UNION ALL
    (
        SELECT rounds.lane, rounds.gate
        FROM durable.rounds
        WHERE rounds.gate = ANY (@gates::bigint[])
        LIMIT @most
    )
) first;
