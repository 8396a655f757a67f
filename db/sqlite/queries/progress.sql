-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: Report :execrows
-- Index: the key of runs. Fenced by the claim: no row is counted when the run is no
-- longer the claim's. What is null stays as it is. Idempotent: a repeat writes the same
-- values.
INSERT INTO progress (run_id, updated_at, fraction, note, checkpoint)
SELECT
    runs.id, @updated_at,
    CAST(sqlc.narg(fraction) AS REAL),
    CAST(sqlc.narg(note) AS TEXT),
    CAST(sqlc.narg(checkpoint) AS BLOB)
FROM runs
WHERE runs.id = @run_id
  AND runs.claim_id = @claim_id
  AND runs.state = 1
ON CONFLICT (run_id) DO UPDATE
SET updated_at = excluded.updated_at,
    fraction = coalesce(excluded.fraction, fraction),
    note = coalesce(excluded.note, note),
    checkpoint = coalesce(excluded.checkpoint, checkpoint);

-- name: FindProgress :one
-- Index: the primary key.
SELECT fraction, note, updated_at
FROM progress
WHERE run_id = @run_id;

-- name: FindCheckpoint :one
-- Index: the primary key.
SELECT checkpoint
FROM progress
WHERE run_id = @run_id;

-- name: ListChosen :many
-- ListRuns for runs that are named, by their ids in hexadecimal: probes the key of runs
-- for each.
SELECT
    sqlc.embed(runs),
    lanes.queue, lanes.job, lanes.priority, problems.reason,
    CAST(
        coalesce(
            (
                SELECT attempts.error
                FROM attempts
                WHERE attempts.run_id = runs.id
                ORDER BY attempts.fence DESC
                LIMIT 1
            ),
            ''
        ) AS TEXT
    ) AS last_error
FROM runs
CROSS JOIN lanes ON lanes.id = abs(runs.lane)
LEFT JOIN problems ON problems.run_id = runs.id
WHERE runs.id IN (SELECT unhex(value) FROM json_each(@ids))
  AND runs.id < @below
  AND runs.id >= @from_id
  AND (
      @states = '[]'
      OR runs.state IN (SELECT value FROM json_each(@states))
  )
  AND (
      @jobs = '[]'
      OR lanes.job IN (SELECT value FROM json_each(@jobs))
  )
  AND (
      @queues = '[]'
      OR lanes.queue IN (SELECT value FROM json_each(@queues))
  )
  AND (
      @tag = ''
      OR EXISTS (
          SELECT 1
          FROM json_each(runs.tags) tag
          WHERE tag.value = @tag
      )
  )
  AND (
      @chosen = ''
      OR coalesce(runs.key, '') = coalesce(json_extract(@chosen, '$.key'), runs.key, '')
      AND coalesce(runs.schedule, '') = coalesce(
          json_extract(@chosen, '$.schedule'), runs.schedule, ''
      )
      AND coalesce(runs.worker, '') = coalesce(
          json_extract(@chosen, '$.worker'), runs.worker, ''
      )
      AND coalesce(runs.finished_at, -1) >= coalesce(json_extract(@chosen, '$.ended_since'), -1)
      AND NOT EXISTS (
          SELECT 1
          FROM json_each(@chosen, '$.metadata') wanted
          WHERE NOT EXISTS (
              SELECT 1
              FROM json_each(runs.metadata) noted
              WHERE noted.key = wanted.key
                AND noted.value = wanted.value
          )
      )
      AND (
          json_extract(@chosen, '$.error') IS NULL
          OR runs.state <> 2 AND instr(
              coalesce(
                  nullif(problems.reason, ''),
                  (
                      SELECT attempts.error
                      FROM attempts
                      WHERE attempts.run_id = runs.id
                      ORDER BY attempts.fence DESC
                      LIMIT 1
                  ),
                  ''
              ),
              json_extract(@chosen, '$.error')
          ) > 0
      )
      AND (
          json_extract(@chosen, '$.args') IS NULL
          OR EXISTS (
              SELECT 1
              FROM json_each(@chosen, '$.args') AS spelling
              WHERE instr(CAST(runs.args AS TEXT), spelling.value) > 0
          )
      )
  )
ORDER BY runs.id DESC
LIMIT @most;
