-- name: UnknownSources :many
-- Those of runs that do not exist.
-- Index: runs_pkey. Locks: none.
SELECT asked.id::uuid AS id
FROM (SELECT unnest(@ids::uuid[]) AS id) asked
WHERE NOT EXISTS (SELECT FROM durable.runs WHERE runs.id = asked.id);

-- name: AddEdges :exec
-- Stores what dependents wait for, and has them looked at.
-- Index: edges_pkey. Locks: what it inserts. Idempotent: a repeat finds the edges, and looks
-- again.
WITH added AS (
    INSERT INTO durable.edges (waiter, source, wants, any_of)
    SELECT given.waiter, given.source, given.wants, given.any_of
    FROM (
        SELECT
            unnest(@waiters::uuid[]) AS waiter,
            unnest(@sources::uuid[]) AS source,
            unnest(@wants::smallint[]) AS wants,
            unnest(@any_ofs::smallint[]) AS any_of
    ) given
    ON CONFLICT DO NOTHING
)
INSERT INTO durable.notices (run_id, kind)
SELECT asked.id, durable.notice_look()
FROM (SELECT DISTINCT unnest(@looks::uuid[]) AS id) asked;

-- name: CallersHeld :many
-- Those of the runs that are still their claims'.
-- Index: runs_pkey. Locks: none.
SELECT runs.id
FROM (
    SELECT
        unnest(@runs::uuid[]) AS run_id,
        unnest(@claims::uuid[]) AS claim_id
) given
JOIN durable.runs ON runs.id = given.run_id
    AND runs.claim_id = given.claim_id
WHERE runs.state = durable.running();

-- name: BeginCalls :many
-- After children were stored in its transaction, at the end of it: locks the runs that call them if
-- they are still their claims', makes the children theirs, and has them wait for these in a new
-- stretch of their lives, see BeginWait. It returns the runs that it has locked, and, as foreign,
-- children that were stored before under another parent or name: unless it returns all of the
-- former and none of the latter, the transaction is to be rolled back.
-- Index: runs_pkey, edges_pkey, steps_pkey. Locks: the runs that call, with SKIP LOCKED, as calls
-- of others share the transaction; the children are new, or have this parent.
-- Idempotent: a repeat changes nothing.
WITH given AS MATERIALIZED (
    SELECT
        unnest(@ids::uuid[]) AS id,
        unnest(@stored::boolean[]) AS stored,
        unnest(@parents::uuid[]) AS parent,
        unnest(@names::text[]) AS name
), calls AS MATERIALIZED (
    SELECT
        unnest(@callers::uuid[]) AS run_id,
        unnest(@claims::uuid[]) AS claim_id,
        unnest(@called::text[]) AS name,
        unnest(@counts::int[]) AS children
), locked_runs AS MATERIALIZED (
    SELECT id, claim_id
    FROM durable.runs
    WHERE id = ANY (@callers::uuid[])
      AND state = durable.running()
    FOR NO KEY UPDATE SKIP LOCKED
), added AS (
    INSERT INTO durable.edges (waiter, source, wants, name)
    SELECT given.parent, given.id, @wants::smallint, given.name
    FROM given
    WHERE given.stored
    ON CONFLICT DO NOTHING
), awaited AS (
    UPDATE durable.runs
    SET links = coalesce(links, 0) | durable.link_awaited()
    WHERE id = ANY (ARRAY(SELECT given.id FROM given WHERE given.stored))
), begun AS (
    INSERT INTO durable.steps (run_id, at, tries, kind, name)
    SELECT calls.run_id, clock_timestamp(), calls.children, durable.step_children(), calls.name
    FROM calls
    JOIN locked_runs ON locked_runs.id = calls.run_id
        AND locked_runs.claim_id = calls.claim_id
    ON CONFLICT DO NOTHING
    RETURNING run_id
), stretched AS (
    UPDATE durable.runs
    SET attempt = 1,
        crash_count = 0,
        lane = abs(lane),
        links = coalesce(links, 0) | durable.link_parent()
    WHERE id = ANY (ARRAY(SELECT begun.run_id FROM begun))
)
SELECT
    calls.run_id::uuid AS id,
    false AS foreign_run
FROM calls
JOIN locked_runs ON locked_runs.id = calls.run_id
    AND locked_runs.claim_id = calls.claim_id
UNION ALL
SELECT
    given.id::uuid,
    true
FROM given
WHERE NOT given.stored
  AND NOT EXISTS (
      SELECT
      FROM durable.edges
      WHERE edges.waiter = given.parent
        AND edges.name = given.name
        AND edges.source = given.id
  );

-- name: WaitersOf :many
-- The runs that wait for a run, from a cursor on.
-- Index: edges_source. Locks: none.
SELECT DISTINCT edges.waiter
FROM durable.edges
WHERE edges.source = @source::uuid
  AND edges.waiter > @after::uuid
  AND NOT edges.met
ORDER BY edges.waiter
LIMIT @most::int;

-- name: EdgesOfWaiters :many
-- After LockNoticed in its transaction: what its runs wait for as dependents that have never
-- been executed, with what the sources are now. No state: the source is gone.
-- Index: edges_pkey, runs_pkey. Locks: none.
SELECT
    edges.waiter,
    edges.source,
    edges.wants,
    edges.any_of,
    edges.met,
    coalesce(sources.state, -1)::smallint AS state,
    (coalesce(sources.links, 0) & durable.link_awaited() <> 0)::boolean AS noted
FROM durable.edges
JOIN durable.runs waiters ON waiters.id = edges.waiter
LEFT JOIN durable.runs sources ON sources.id = edges.source
WHERE edges.waiter = ANY (@ids::uuid[])
  AND edges.name = ''
  AND edges.wants <= durable.want_of_batch()
  AND waiters.started_at IS NULL
  AND waiters.state = durable.pending()
  AND waiters.due_at > clock_timestamp();

-- name: AwaitEnds :many
-- Has the ends of runs noted, and the runs kept by retention, and returns their states. One that
-- is executing is settled as always: its row is locked for a moment.
-- Index: runs_pkey. Locks: the runs, with SKIP LOCKED, until the transaction ends.
-- Idempotent: a repeat finds the mark.
WITH locked_runs AS MATERIALIZED (
    SELECT runs.id
    FROM durable.runs
    WHERE runs.id = ANY (@ids::uuid[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE durable.runs
SET links = coalesce(links, 0) | durable.link_awaited()
WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
RETURNING id, state;

-- name: MeetEdges :exec
-- Keeps that conditions are met, whatever becomes of their sources.
-- Index: edges_pkey. Locks: edges of runs that the transaction has locked.
-- Idempotent: a repeat finds them met.
UPDATE durable.edges
SET met = true
FROM (
    SELECT unnest(@waiters::uuid[]) AS waiter, unnest(@sources::uuid[]) AS source,
        unnest(@wants::smallint[]) AS wants
) given
WHERE edges.waiter = given.waiter
  AND edges.name = ''
  AND edges.source = given.source
  AND edges.wants = given.wants
  AND NOT edges.met;

-- name: AwaitingChildren :many
-- After LockNoticed in its transaction: those of its runs that are due later, and wait for
-- children, or for a batch, of which none is unfinished.
-- Index: runs_pkey, steps_pkey, edges_pkey, batches_pkey. Locks: none.
SELECT runs.id
FROM durable.runs
WHERE runs.id = ANY (@ids::uuid[])
  AND runs.state = durable.pending()
  AND runs.due_at > clock_timestamp()
  AND EXISTS (
      SELECT
      FROM durable.steps
      WHERE steps.run_id = runs.id
        AND steps.kind = durable.step_children()
        AND (
            SELECT count(*) = 0
            FROM (
                SELECT edges.source
                FROM durable.edges
                WHERE edges.waiter = runs.id
                  AND edges.name = steps.name
                  AND (
                      SELECT durable.is_unfinished(children.state)
                      FROM durable.runs children
                      WHERE children.id = edges.source
                  )
                LIMIT 1
            ) unfinished_children
        )
        AND (
            SELECT count(*) = 0
            FROM durable.edges
            WHERE edges.waiter = runs.id
              AND edges.name = steps.name
              AND edges.wants > durable.want_of_batch()
              AND (
                  SELECT batches.ended_at IS NULL
                  FROM durable.batches
                  WHERE batches.id = edges.source
              )
        )
  );

-- name: ArrivedChildren :many
-- Those of runs that have begun to wait for children, or for a batch, under a name of which none
-- is unfinished.
-- Index: edges_pkey, runs_pkey, batches_pkey. Locks: none.
SELECT asked.run_id::uuid AS run_id, asked.name::text AS name
FROM (
    SELECT unnest(@runs::uuid[]) AS run_id, unnest(@names::text[]) AS name
) asked
WHERE (
    SELECT count(*) = 0
    FROM (
        SELECT edges.source
        FROM durable.edges
        WHERE edges.waiter = asked.run_id
          AND edges.name = asked.name
          AND (
              SELECT durable.is_unfinished(children.state)
              FROM durable.runs children
              WHERE children.id = edges.source
          )
        LIMIT 1
    ) unfinished_children
)
AND (
    SELECT count(*) = 0
    FROM durable.edges
    WHERE edges.waiter = asked.run_id
      AND edges.name = asked.name
      AND edges.wants > durable.want_of_batch()
      AND (
          SELECT batches.ended_at IS NULL
          FROM durable.batches
          WHERE batches.id = edges.source
      )
);

-- name: OutcomesOf :many
-- How runs have ended.
-- Index: runs_pkey, problems_pkey. Locks: none.
SELECT
    runs.id,
    lanes.job,
    runs.state,
    coalesce(runs.result::text, '')::text AS result,
    coalesce(problems.reason, '')::text AS reason,
    runs.finished_at
FROM durable.runs
JOIN durable.lanes ON lanes.id = abs(runs.lane)
LEFT JOIN durable.problems ON problems.run_id = runs.id
WHERE runs.id = ANY (@ids::uuid[]);

-- name: SourcesOf :many
-- What a run waits for, unmet conditions first.
-- Index: edges_pkey, runs_pkey for so many. Locks: none.
SELECT
    edges.source AS id,
    edges.wants,
    edges.any_of,
    edges.met,
    edges.name,
    coalesce(lanes.job, '')::text AS job,
    coalesce(sources.state, -1)::smallint AS state
FROM (
    SELECT first_edges.*
    FROM durable.edges first_edges
    WHERE first_edges.waiter = @id::uuid
      AND first_edges.wants <= durable.want_of_batch()
    ORDER BY first_edges.met, first_edges.name, first_edges.source
    LIMIT @most::int
) edges
LEFT JOIN durable.runs sources ON sources.id = edges.source
LEFT JOIN durable.lanes ON lanes.id = abs(sources.lane)
ORDER BY edges.met, edges.name, edges.source;

-- name: WaitersFor :many
-- What waits for a run: its parent first, then unmet conditions; of the first thousand, as any
-- number may.
-- Index: edges_source, runs_pkey for so many. Locks: none.
SELECT
    shown.waiter AS id,
    shown.wants,
    shown.any_of,
    shown.met,
    shown.name,
    coalesce(lanes.job, '')::text AS job,
    coalesce(waiters.state, -1)::smallint AS state
FROM (
    SELECT first.waiter, first.wants, first.any_of, first.met, first.name
    FROM (
        SELECT edges.waiter, edges.wants, edges.any_of, edges.met, edges.name
        FROM durable.edges
        WHERE edges.source = @id::uuid
        ORDER BY edges.waiter
        LIMIT 1000
    ) first
    ORDER BY first.name = '', first.met, first.waiter
    LIMIT @most::int
) shown
LEFT JOIN durable.runs waiters ON waiters.id = shown.waiter
LEFT JOIN durable.lanes ON lanes.id = abs(waiters.lane)
ORDER BY shown.name = '', shown.met, shown.waiter;


-- name: CountLinks :one
-- How much a run waits for, and how much waits for it, each up to a bound.
-- Index: edges_pkey, edges_source, so many entries. Locks: none.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.edges
            WHERE edges.waiter = @id::uuid
            LIMIT @most::int
        ) sources
    ) AS sources,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM durable.edges
            WHERE edges.source = @id::uuid
            LIMIT @most::int
        ) waiters
    ) AS waiters;

-- name: ChildrenOf :many
-- The children of a run, newest first.
-- Index: edges_pkey, the entries of one run. Locks: none.
SELECT edges.source AS id
FROM durable.edges
WHERE edges.waiter = @parent::uuid
  AND edges.name <> ''
  AND edges.source < @below::uuid
  AND edges.source >= @from_id::uuid
ORDER BY edges.source DESC
LIMIT @most::int;

-- name: DependentsOf :many
-- The runs that have a condition on a run that is not met, and wait for it, newest first.
-- Index: edges_source backwards, runs_pkey. Locks: none.
SELECT edges.waiter AS id
FROM durable.edges
JOIN durable.runs waiters ON waiters.id = edges.waiter
WHERE edges.source = @source::uuid
  AND edges.waiter < @below::uuid
  AND edges.waiter >= @from_id::uuid
  AND edges.name = ''
  AND NOT edges.met
  AND waiters.state = durable.pending()
  AND waiters.started_at IS NULL
  AND waiters.due_at > clock_timestamp()
GROUP BY edges.waiter
ORDER BY edges.waiter DESC
LIMIT @most::int;

-- name: Holds :many
-- Among the dead runs that ended last and were not acknowledged, those that hold dependents
-- which want their success. Nothing is read where no run waits for another.
-- Index: problems_ended backwards, so many rows; edges_source and runs_pkey for each.
-- Locks: none.
SELECT
    dead.run_id,
    lanes.job,
    dead.ended_at,
    held.dependents
FROM (
    SELECT problems.run_id, problems.ended_at, problems.lane
    FROM durable.problems
    WHERE problems.state = durable.dead()
      AND (problems.acknowledged_at IS NULL) = true
      AND EXISTS (
          SELECT
          FROM durable.edges
      )
    ORDER BY problems.ended_at DESC, problems.run_id DESC
    LIMIT @examined::int
) dead
JOIN durable.lanes ON lanes.id = dead.lane
CROSS JOIN LATERAL (
    SELECT count(*) AS dependents
    FROM (
        SELECT
        FROM durable.edges
        JOIN durable.runs waiters ON waiters.id = edges.waiter
        WHERE edges.source = dead.run_id
          AND edges.name = ''
          AND edges.wants = @wants::smallint
          AND NOT edges.met
          AND waiters.state = durable.pending()
          AND waiters.started_at IS NULL
          AND waiters.due_at > clock_timestamp()
        LIMIT @counted::int
    ) waiting
) held
WHERE held.dependents > 0
ORDER BY dead.ended_at DESC, dead.run_id DESC
LIMIT @most::int;
