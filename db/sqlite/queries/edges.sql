-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.
-- Links of a run: 1 its end is noted, 2 it has children. Kinds of a step: 5 children.

-- name: InsertEdge :exec
-- Index: the primary key. Idempotent: a repeat finds the edge.
INSERT INTO edges (waiter, source, wants, any_of, name)
VALUES (@waiter, @source, @wants, @any_of, @name)
ON CONFLICT DO NOTHING;

-- name: HasChild :one
-- Index: the primary key.
SELECT count(*)
FROM edges
WHERE waiter = @waiter
  AND name = @name
  AND source = @source;

-- name: AddLink :exec
-- Index: the key of runs. Idempotent: a repeat finds the bit.
UPDATE runs
SET links = coalesce(links, 0) | @link
WHERE id = @id;

-- name: WaitersOf :many
-- Index: edges_source, behind a cursor.
SELECT DISTINCT waiter
FROM edges
WHERE source = @source
  AND waiter > @after
  AND met = 0
ORDER BY waiter
LIMIT @most;

-- name: EdgesOf :many
-- Index: the primary key, then the key of runs. What a dependent waits for. No state: the source
-- is gone.
SELECT
    edges.source, edges.wants, edges.any_of, edges.met,
    CAST(coalesce(runs.state, -1) AS INTEGER) AS state
FROM edges
LEFT JOIN runs ON runs.id = edges.source
WHERE edges.waiter = @waiter
  AND edges.name = '';

-- name: MeetEdge :exec
-- Index: the primary key. Idempotent: a repeat finds it met.
UPDATE edges
SET met = 1
WHERE waiter = @waiter
  AND name = ''
  AND any_of = @any_of
  AND source = @source
  AND wants = @wants;

-- name: MeetAll :exec
-- Index: the primary key. Idempotent: a repeat finds them met.
UPDATE edges
SET met = 1
WHERE waiter = @waiter
  AND name = ''
  AND met = 0;

-- name: FindWaiter :one
-- Index: the key of runs, and the primary keys of steps, edges and batches. Came: it waits for
-- children, or for a batch (wants > 10), of which none is unfinished.
SELECT
    runs.state, runs.lane, runs.due_at, runs.limits, runs.claim_id, runs.cancel, runs.started_at,
    CAST(
        EXISTS (
            SELECT 1
            FROM steps
            WHERE steps.run_id = runs.id
              AND steps.kind = 5
              AND NOT EXISTS (
                  SELECT 1
                  FROM edges
                  LEFT JOIN runs AS children ON children.id = edges.source AND edges.wants <= 10
                  LEFT JOIN batches ON batches.id = edges.source AND edges.wants > 10
                  WHERE edges.waiter = runs.id
                    AND edges.name = steps.name
                    AND (children.state < 2 OR batches.state >= 0 AND batches.ended_at IS NULL)
              )
        ) AS INTEGER
    ) AS came
FROM runs
WHERE runs.id = @id;

-- name: ChildrenCame :one
-- Index: the primary keys of steps and edges, and the key of runs. Whether a run waits for
-- children, or for a batch (wants > 10), under a name of which none is unfinished.
SELECT CAST(
    EXISTS (
        SELECT 1
        FROM steps
        WHERE steps.run_id = @id
          AND steps.name = @name
          AND steps.kind = 5
          AND NOT EXISTS (
              SELECT 1
              FROM edges
              LEFT JOIN runs AS children ON children.id = edges.source AND edges.wants <= 10
              LEFT JOIN batches ON batches.id = edges.source AND edges.wants > 10
              WHERE edges.waiter = steps.run_id
                AND edges.name = steps.name
                AND (children.state < 2 OR batches.id IS NOT NULL AND batches.ended_at IS NULL)
          )
    ) AS INTEGER
) AS came;

-- name: HasUnmet :one
-- Index: the key of runs, and the primary key of edges. Whether a run that was never executed
-- has a condition that is not met.
SELECT count(*)
FROM edges
JOIN runs ON runs.id = edges.waiter
WHERE edges.waiter = @waiter
  AND edges.name = ''
  AND edges.met = 0
  AND runs.started_at IS NULL;

-- name: IsNeeded :one
-- Index: edges_source, then the key of runs. Whether an unfinished run waits for a source, or may
-- want its result.
SELECT count(*)
FROM edges
JOIN runs ON runs.id = edges.waiter
WHERE edges.source = @source
  AND runs.state < 2;

-- name: FindOutcome :one
-- Index: the key of runs, then that of lanes and the primary key of problems.
SELECT
    lanes.job, runs.state, runs.result, coalesce(problems.reason, '') AS reason, runs.finished_at
FROM runs
JOIN lanes ON lanes.id = abs(runs.lane)
LEFT JOIN problems ON problems.run_id = runs.id
WHERE runs.id = @id;

-- name: SourcesOf :many
-- Index: the primary key, then the key of runs.
SELECT
    edges.source AS id, edges.wants, edges.any_of, edges.met, edges.name,
    coalesce(lanes.job, '') AS job,
    CAST(coalesce(runs.state, -1) AS INTEGER) AS state
FROM edges
LEFT JOIN runs ON runs.id = edges.source
LEFT JOIN lanes ON lanes.id = abs(runs.lane)
WHERE edges.waiter = @id
ORDER BY edges.met, edges.name, edges.source
LIMIT @most;

-- name: WaitersFor :many
-- Index: edges_source, then the key of runs. The parent comes first; of the first thousand, as any
-- number may wait.
SELECT
    shown.waiter AS id, shown.wants, shown.any_of, shown.met, shown.name,
    coalesce(lanes.job, '') AS job,
    CAST(coalesce(runs.state, -1) AS INTEGER) AS state
FROM (
    SELECT head.waiter, head.wants, head.any_of, head.met, head.name
    FROM (
        SELECT edges.waiter, edges.wants, edges.any_of, edges.met, edges.name
        FROM edges
        WHERE edges.source = @id
        ORDER BY edges.waiter
        LIMIT 1000
    ) head
    ORDER BY head.name = '', head.met, head.waiter
    LIMIT @most
) shown
LEFT JOIN runs ON runs.id = shown.waiter
LEFT JOIN lanes ON lanes.id = abs(runs.lane)
ORDER BY shown.name = '', shown.met, shown.waiter;


-- name: CountSources :one
-- Index: the primary key, so many entries.
SELECT count(*)
FROM (
    SELECT 1
    FROM edges
    WHERE edges.waiter = @id
    LIMIT @most
) some_edges;

-- name: CountWaiters :one
-- Index: edges_source, so many entries.
SELECT count(*)
FROM (
    SELECT 1
    FROM edges
    WHERE edges.source = @id
    LIMIT @most
) some_edges;

-- name: ChildrenOf :many
-- Index: the primary key, the entries of one run. Newest first.
SELECT source
FROM edges
WHERE waiter = @parent
  AND name <> ''
  AND source < @below
  AND source >= @from_id
ORDER BY source DESC
LIMIT @most;

-- name: DependentsOf :many
-- Index: edges_source backwards, then the key of runs. Those that have a condition on a run that
-- is not met, and wait for it, newest first.
SELECT edges.waiter
FROM edges
JOIN runs ON runs.id = edges.waiter
WHERE edges.source = @source
  AND edges.waiter < @below
  AND edges.waiter >= @from_id
  AND edges.name = ''
  AND edges.met = 0
  AND runs.state = 0
  AND runs.started_at IS NULL
  AND runs.due_at > @now
GROUP BY edges.waiter
ORDER BY edges.waiter DESC
LIMIT @most;

-- name: Holds :many
-- Index: problems_ended backwards, so many rows; edges_source and the key of runs for each. Nothing
-- is read where no run waits for another.
SELECT dead.run_id, lanes.job, dead.ended_at, dead.dependents
FROM (
    SELECT
        newest.run_id, newest.ended_at,
        CAST(
            (
                SELECT count(*)
                FROM edges
                JOIN runs waiters ON waiters.id = edges.waiter
                WHERE edges.source = newest.run_id
                  AND edges.name = ''
                  AND edges.wants = @wants
                  AND edges.met = 0
                  AND waiters.state = 0
                  AND waiters.started_at IS NULL
                  AND waiters.due_at > @now
            ) AS INTEGER
        ) AS dependents
    FROM (
        SELECT problems.run_id, problems.ended_at, problems.acknowledged_at
        FROM problems
        WHERE EXISTS (
            SELECT 1
            FROM edges
        )
        ORDER BY problems.ended_at DESC, problems.run_id DESC
        LIMIT @examined
    ) newest
    WHERE newest.acknowledged_at IS NULL
) dead
JOIN runs ON runs.id = dead.run_id
JOIN lanes ON lanes.id = abs(runs.lane)
WHERE dead.dependents > 0
  AND runs.state = 4
ORDER BY dead.ended_at DESC, dead.run_id DESC
LIMIT @most;

-- name: DeleteEdges :exec
-- Index: the primary key. After the run that waits was deleted in its transaction.
DELETE FROM edges
WHERE waiter = @waiter;
