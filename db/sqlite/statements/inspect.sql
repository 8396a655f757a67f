-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: CountRuns
-- ?1 the most that is counted of each. All, the span of the numbers they were given
-- (about as many, less those deleted), pending, running, dead, cancelled, in one
-- snapshot. No table is read whole but the narrow ones: the key of runs, ready, problems,
-- and the runs of living leases; what succeeded is the rest.
WITH RECURSIVE held (claim_id, ids, place) AS (
    SELECT claim_id, run_ids, 1
    FROM leases
    UNION ALL
    SELECT claim_id, ids, place + 16
    FROM held
    WHERE place + 16 < length(ids)
), problem (state) AS (
    SELECT runs.state
    FROM problems
    CROSS JOIN runs ON runs.id = problems.run_id
    LIMIT 2 * ?1
)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM runs LIMIT ?1)),
    coalesce((SELECT max(seq) FROM runs) - (SELECT min(seq) FROM runs) + 1, 0),
    (SELECT count(*) FROM (SELECT 1 FROM ready LIMIT ?1))
        + (SELECT count(*) FROM (SELECT 1 FROM waiting LIMIT ?1)),
    (
        SELECT count(*)
        FROM held
        CROSS JOIN runs ON runs.id = substr(held.ids, held.place, 16)
            AND runs.claim_id = held.claim_id
            AND runs.state = 1
    ),
    (SELECT count(*) FROM (SELECT 1 FROM problem WHERE state = 4 LIMIT ?1)),
    (SELECT count(*) FROM (SELECT 1 FROM problem WHERE state = 5 LIMIT ?1));

-- name: CountStranded
-- ?1 how many of the newest runs are examined, by the integer key. Running runs whose
-- claim has no lease.
SELECT count(*)
FROM (
    SELECT claim_id, state
    FROM runs
    ORDER BY seq DESC
    LIMIT ?1
) AS newest
WHERE state = 1
  AND NOT EXISTS (
      SELECT 1
      FROM leases
      WHERE leases.claim_id = newest.claim_id
  );

-- name: CountSucceededAtEnds
-- ?1 how many of the newest and of the oldest runs are examined, by the integer key. The
-- succeeded ones among them.
SELECT count(*)
FROM (
    SELECT seq, state
    FROM (SELECT seq, state FROM runs ORDER BY seq DESC LIMIT ?1)
    UNION
    SELECT seq, state
    FROM (SELECT seq, state FROM runs ORDER BY seq LIMIT ?1)
) AS ends
WHERE state = 2;

-- name: SampleRuns
-- ?1 how many numbers are examined, at least 2, evenly from the first to the last that a
-- run has: one probe of runs each. Of these: how many are pending, succeeded, dead and
-- cancelled.
WITH RECURSIVE probe (number) AS (
    SELECT 0
    UNION ALL
    SELECT number + 1
    FROM probe
    WHERE number + 1 < ?1
), span (low, high) AS MATERIALIZED (
    SELECT
        (SELECT min(seq) FROM runs),
        (SELECT max(seq) FROM runs)
)
SELECT
    coalesce(sum(runs.state = 0), 0),
    coalesce(sum(runs.state = 2), 0),
    coalesce(sum(runs.state = 4), 0),
    coalesce(sum(runs.state = 5), 0)
FROM probe
CROSS JOIN span
CROSS JOIN runs ON runs.seq = span.low + (span.high - span.low) * probe.number / (?1 - 1);

-- name: CountMatching
-- ?1 the most that is examined of each state, ?2 and ?3 the ids, from the first to below
-- the second, ?4 states, ?5 jobs, ?6 queues as JSON arrays, empty: any but of states, ?7
-- tag, ?8 the choice, an object, empty: none. For each state: how many runs were examined,
-- and how many pass. Reads ready, waiting, leases, problems and the key of runs downwards,
-- so many rows of each, and one row of runs for each of these.
WITH RECURSIVE held (claim_id, ids, place) AS (
    SELECT claim_id, run_ids, 1
    FROM leases
    UNION ALL
    SELECT claim_id, ids, place + 16
    FROM held
    WHERE place + 16 < length(ids)
), looked (state, id) AS (
    SELECT 0, waiting.run_id
    FROM (SELECT run_id FROM ready LIMIT ?1) AS waiting
    UNION ALL
    SELECT 0, limited.run_id
    FROM (SELECT run_id FROM waiting LIMIT ?1) AS limited
    UNION ALL
    SELECT 1, leased.id
    FROM (SELECT DISTINCT substr(ids, place, 16) AS id FROM held LIMIT ?1) AS leased
    UNION ALL
    SELECT 2, newest.id
    FROM (SELECT id FROM runs WHERE id >= ?2 AND id < ?3 ORDER BY id DESC LIMIT ?1) AS newest
    UNION ALL
    SELECT 45, problem.run_id
    FROM (SELECT run_id FROM problems LIMIT ?1) AS problem
)
SELECT
    asked.value,
    count(*),
    coalesce(
        sum(
            runs.state = asked.value
            AND runs.id >= ?2
            AND runs.id < ?3
            AND (?5 = '[]' OR lanes.job IN (SELECT value FROM json_each(?5)))
            AND (?6 = '[]' OR lanes.queue IN (SELECT value FROM json_each(?6)))
            AND (
                ?7 = ''
                OR EXISTS (
                    SELECT 1
                    FROM json_each(runs.tags) AS tag
                    WHERE tag.value = ?7
                )
            )
            AND (
                ?8 = ''
                OR coalesce(runs.key, '') = coalesce(json_extract(?8, '$.key'), runs.key, '')
                AND coalesce(runs.schedule, '') = coalesce(
                    json_extract(?8, '$.schedule'), runs.schedule, ''
                )
                AND coalesce(runs.worker, '') = coalesce(
                    json_extract(?8, '$.worker'), runs.worker, ''
                )
                AND coalesce(runs.finished_at, -1)
                    >= coalesce(json_extract(?8, '$.ended_since'), -1)
                AND NOT EXISTS (
                    SELECT 1
                    FROM json_each(?8, '$.metadata') AS wanted
                    WHERE NOT EXISTS (
                        SELECT 1
                        FROM json_each(runs.metadata) AS noted
                        WHERE noted.key = wanted.key
                          AND noted.value = wanted.value
                    )
                )
                AND (
                    json_extract(?8, '$.error') IS NULL
                    OR runs.state <> 2 AND instr(
                        coalesce(
                            (
                                SELECT nullif(problems.reason, '')
                                FROM problems
                                WHERE problems.run_id = runs.id
                            ),
                            (
                                SELECT attempts.error
                                FROM attempts
                                WHERE attempts.run_id = runs.id
                                ORDER BY attempts.fence DESC
                                LIMIT 1
                            ),
                            ''
                        ),
                        json_extract(?8, '$.error')
                    ) > 0
                )
                AND (
                    json_extract(?8, '$.args') IS NULL
                    OR EXISTS (
                        SELECT 1
                        FROM json_each(?8, '$.args') AS spelling
                        WHERE instr(CAST(runs.args AS TEXT), spelling.value) > 0
                    )
                )
            )
        ),
        0
    )
FROM json_each(?4) AS asked
CROSS JOIN looked ON looked.state = CASE
    WHEN asked.value IN (4, 5) THEN 45
    ELSE asked.value
END
CROSS JOIN runs ON runs.id = looked.id
CROSS JOIN lanes ON lanes.id = abs(runs.lane)
GROUP BY asked.value;

-- name: CountThese
-- ?1 ids in hex as a JSON array, ?2 and ?3 the ids, from the first to below the second, ?4
-- states, ?5 jobs, ?6 queues as JSON arrays, empty: any but of states, ?7 tag, ?8 the
-- choice, an object, empty: none. How many of the runs pass, by state: the key of runs,
-- once for each id.
SELECT runs.state, count(*)
FROM json_each(?1) AS asked
CROSS JOIN runs ON runs.id = unhex(asked.value)
CROSS JOIN lanes ON lanes.id = abs(runs.lane)
WHERE runs.id >= ?2
  AND runs.id < ?3
  AND runs.state IN (SELECT value FROM json_each(?4))
  AND (?5 = '[]' OR lanes.job IN (SELECT value FROM json_each(?5)))
  AND (?6 = '[]' OR lanes.queue IN (SELECT value FROM json_each(?6)))
  AND (
      ?7 = ''
      OR EXISTS (
          SELECT 1
          FROM json_each(runs.tags) AS tag
          WHERE tag.value = ?7
      )
  )
  AND (
      ?8 = ''
      OR coalesce(runs.key, '') = coalesce(json_extract(?8, '$.key'), runs.key, '')
      AND coalesce(runs.schedule, '') = coalesce(
          json_extract(?8, '$.schedule'), runs.schedule, ''
      )
      AND coalesce(runs.worker, '') = coalesce(json_extract(?8, '$.worker'), runs.worker, '')
      AND coalesce(runs.finished_at, -1) >= coalesce(json_extract(?8, '$.ended_since'), -1)
      AND NOT EXISTS (
          SELECT 1
          FROM json_each(?8, '$.metadata') AS wanted
          WHERE NOT EXISTS (
              SELECT 1
              FROM json_each(runs.metadata) AS noted
              WHERE noted.key = wanted.key
                AND noted.value = wanted.value
          )
      )
      AND (
          json_extract(?8, '$.error') IS NULL
          OR runs.state <> 2 AND instr(
              coalesce(
                  (
                      SELECT nullif(problems.reason, '')
                      FROM problems
                      WHERE problems.run_id = runs.id
                  ),
                  (
                      SELECT attempts.error
                      FROM attempts
                      WHERE attempts.run_id = runs.id
                      ORDER BY attempts.fence DESC
                      LIMIT 1
                  ),
                  ''
              ),
              json_extract(?8, '$.error')
          ) > 0
      )
      AND (
          json_extract(?8, '$.args') IS NULL
          OR EXISTS (
              SELECT 1
              FROM json_each(?8, '$.args') AS spelling
              WHERE instr(CAST(runs.args AS TEXT), spelling.value) > 0
          )
      )
  )
GROUP BY runs.state;
