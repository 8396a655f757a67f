-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: FindRun :one
-- Index: the key of runs. The empty text means no error.
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
JOIN lanes ON lanes.id = abs(runs.lane)
LEFT JOIN problems ON problems.run_id = runs.id
WHERE runs.id = @id;

-- name: ListAttempts :many
-- Index: the primary key; in the order in which they were executed.
SELECT number, outcome, worker, fence, started_at, ended_at, error, stack, log
FROM attempts
WHERE run_id = @run_id
ORDER BY fence;

-- name: FloorOfRuns :one
-- The key of runs downwards, so many ids and no rows.
SELECT id
FROM runs
WHERE id < @below
  AND id >= @from_id
ORDER BY id DESC
LIMIT 1
OFFSET @skip;

-- name: FloorOfProblems :one
-- The primary key of problems downwards.
SELECT run_id
FROM problems
WHERE run_id < @below
  AND run_id >= @from_id
ORDER BY run_id DESC
LIMIT 1
OFFSET @skip;

-- name: ListRuns :many
-- Walks the key of runs downwards from the cursor to the floor; CROSS JOIN keeps it so.
-- An empty JSON array, an empty tag, and an empty choice filter nothing.
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
WHERE runs.id < @below
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

-- name: ListProblems :many
-- The same where only dead and cancelled runs are asked for: walks problems, which holds
-- nothing else.
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
FROM problems
CROSS JOIN runs ON runs.id = problems.run_id
CROSS JOIN lanes ON lanes.id = abs(runs.lane)
WHERE problems.run_id < @below
  AND problems.run_id >= @from_id
  AND runs.state IN (SELECT value FROM json_each(@states))
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
ORDER BY problems.run_id DESC
LIMIT @most;

-- name: RunsOfKey :many
-- Index: runs_key downwards, so many entries and no rows.
SELECT id
FROM runs
WHERE key = @key
  AND id < @below
  AND id >= @from_id
ORDER BY id DESC
LIMIT @most;

-- name: RunsOfSchedule :many
-- Index: runs_schedule downwards, so many entries and no rows.
SELECT id
FROM runs
WHERE schedule = @schedule
  AND id < @below
  AND id >= @from_id
ORDER BY id DESC
LIMIT @most;
