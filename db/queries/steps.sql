-- name: ClockOfRuns :many
-- The time, and when each of the runs expires.
-- Index: runs_pkey. Locks: none.
SELECT
    given.id,
    clock_timestamp()::timestamptz AS now,
    (SELECT expires_at FROM durable.runs WHERE runs.id = given.id) AS expires_at
FROM (SELECT unnest(@ids::uuid[]) AS id) given;

-- name: StepsOf :many
-- Index: steps_pkey. Locks: none.
SELECT
    run_id,
    name,
    kind,
    tries,
    at,
    coalesce(took, 0)::bigint AS took,
    until,
    coalesce(value::text, '')::text AS value,
    coalesce(error, '')::text AS error,
    coalesce(code, '')::text AS code
FROM durable.steps
WHERE run_id = ANY (@runs::uuid[])
ORDER BY at, name;

-- name: InputsOf :many
-- Index: inputs_pkey. Locks: none.
SELECT
    run_id,
    name,
    at,
    coalesce(sender, '')::text AS sender,
    coalesce(value::text, '')::text AS value,
    coalesce(digest, '')::text AS digest
FROM durable.inputs
WHERE run_id = ANY (@runs::uuid[])
ORDER BY at, name;

-- name: StepOf :many
-- Index: steps_pkey. Locks: none.
SELECT
    run_id,
    name,
    kind,
    tries,
    at,
    coalesce(took, 0)::bigint AS took,
    until,
    coalesce(value::text, '')::text AS value,
    coalesce(error, '')::text AS error,
    coalesce(code, '')::text AS code
FROM durable.steps
WHERE run_id = @run_id::uuid
  AND name = @name::text;

-- name: InputOf :many
-- Index: inputs_pkey. Locks: none.
SELECT
    run_id,
    name,
    at,
    coalesce(sender, '')::text AS sender,
    coalesce(value::text, '')::text AS value,
    coalesce(digest, '')::text AS digest
FROM durable.inputs
WHERE run_id = @run_id::uuid
  AND name = @name::text;

-- name: RecordSteps :many
-- Stores steps of runs that are running under the claims named with them. What is returned is
-- stored; StepFates says what became of the rest.
-- Index: runs_pkey, steps_pkey. Locks: the runs, with SKIP LOCKED, so that none is settled or
-- reclaimed in between; then their steps.
-- Idempotent: a repeat finds the result and returns nothing, or writes the same tries again.
WITH given AS MATERIALIZED (
    SELECT
        unnest(@runs::uuid[]) AS run_id,
        unnest(@claims::uuid[]) AS claim_id,
        unnest(@names::text[]) AS name,
        unnest(@kinds::smallint[]) AS kind,
        unnest(@tries::int[]) AS tries,
        unnest(@took::bigint[]) AS took,
        unnest(@vals::text[]) AS value,
        unnest(@errors::text[]) AS error,
        unnest(@codes::text[]) AS code
), locked_runs AS MATERIALIZED (
    SELECT id, claim_id
    FROM durable.runs
    WHERE id = ANY (@runs::uuid[])
      AND state = durable.running()
    FOR NO KEY UPDATE SKIP LOCKED
)
INSERT INTO durable.steps (run_id, at, took, tries, kind, name, value, error, code)
SELECT
    given.run_id,
    clock_timestamp(),
    given.took,
    given.tries,
    given.kind,
    given.name,
    nullif(given.value, '')::json,
    nullif(given.error, ''),
    nullif(given.code, '')
FROM given
JOIN locked_runs ON locked_runs.id = given.run_id
    AND locked_runs.claim_id = given.claim_id
ON CONFLICT (run_id, name) DO UPDATE
SET at = excluded.at,
    took = excluded.took,
    tries = greatest(steps.tries, excluded.tries),
    kind = excluded.kind,
    value = excluded.value,
    error = excluded.error,
    code = excluded.code
WHERE durable.step_is_replaced(steps.kind)
RETURNING run_id, name;

-- name: StepFates :many
-- What is stored of steps, and whether their runs are still their claims'.
-- Index: runs_pkey, steps_pkey. Locks: none.
SELECT
    given.run_id::uuid AS run_id,
    given.name::text AS name,
    coalesce(
        runs.state = durable.running() AND runs.claim_id = given.claim_id,
        false
    )::boolean AS held,
    EXISTS (
        SELECT
        FROM durable.steps
        WHERE steps.run_id = given.run_id
          AND steps.name = given.name
          AND NOT durable.step_is_replaced(steps.kind)
    )::boolean AS known
FROM (
    SELECT
        unnest(@runs::uuid[]) AS run_id,
        unnest(@claims::uuid[]) AS claim_id,
        unnest(@names::text[]) AS name
) given
LEFT JOIN durable.runs ON runs.id = given.run_id;

-- name: BeginWait :many
-- Records a wait, if nothing is recorded under its name, and begins a new stretch of the run's
-- life with it: no crash is counted, the run is not isolated, and this attempt is the first.
-- A row: the run is the claim's. It ends at an instant, or after so many microseconds, or never.
-- Index: runs_pkey, steps_pkey. Locks: the run while it still belongs to the claim, so that it
-- cannot be settled or reclaimed in between; it fails where the run is locked already.
-- Idempotent: a repeat finds the wait.
WITH locked_run AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = @run_id::uuid
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
    FOR NO KEY UPDATE NOWAIT
), begun AS (
    INSERT INTO durable.steps (run_id, at, until, tries, kind, name)
    SELECT
        locked_run.id,
        clock_timestamp(),
        coalesce(
            sqlc.narg(until)::timestamptz,
            clock_timestamp() + sqlc.narg(lasts)::bigint * interval '1 microsecond'
        ),
        @children::int,
        @kind::smallint,
        @name::text
    FROM locked_run
    ON CONFLICT DO NOTHING
    RETURNING run_id
), stretched AS (
    UPDATE durable.runs
    SET attempt = 1,
        crash_count = 0,
        lane = abs(lane)
    WHERE id = (SELECT begun.run_id FROM begun)
)
SELECT locked_run.id
FROM locked_run;

-- name: GiveUp :many
-- Takes the place of an input that has not come. A row: the run is the claim's.
-- Index: runs_pkey, inputs_pkey. Locks: as BeginWait; waits, within the lock_timeout, for a
-- transaction that sends the input.
-- Idempotent: a repeat finds the place taken.
WITH locked_run AS MATERIALIZED (
    SELECT id
    FROM durable.runs
    WHERE id = @run_id::uuid
      AND claim_id = @claim_id::uuid
      AND state = durable.running()
    FOR NO KEY UPDATE NOWAIT
), given_up AS (
    INSERT INTO durable.inputs (run_id, size, name)
    SELECT locked_run.id, 0, @name::text
    FROM locked_run
    ON CONFLICT DO NOTHING
)
SELECT locked_run.id
FROM locked_run;

-- name: RecordStepIn :many
-- In the caller's transaction, which has locked the run: stores a step. A row: it is stored.
-- Index: steps_pkey. Locks: the step; waits for a transaction that records it too.
-- Idempotent: a repeat finds the result, and returns nothing.
INSERT INTO durable.steps (run_id, at, took, tries, kind, name, value, error, code)
VALUES (
    @run_id::uuid,
    pg_catalog.clock_timestamp(),
    sqlc.narg(took)::bigint,
    @tries::int,
    @kind::smallint,
    @name::text,
    nullif(@val::text, '')::json,
    nullif(@error::text, ''),
    nullif(@code::text, '')
)
ON CONFLICT (run_id, name) DO UPDATE
SET at = excluded.at,
    took = excluded.took,
    tries = greatest(steps.tries, excluded.tries),
    kind = excluded.kind,
    value = excluded.value,
    error = excluded.error,
    code = excluded.code
WHERE durable.step_is_replaced(steps.kind)
RETURNING name;

-- name: ForgetSteps :many
-- Deletes steps, and the marks of having given up, of a run that is not executing. A row: the
-- run is there; whether it was executing, and how many were deleted.
-- Index: runs_pkey, steps_pkey, inputs_pkey. Locks: the run, then its steps and inputs.
-- Idempotent: a repeat finds none.
WITH locked_run AS MATERIALIZED (
    SELECT id, (state = durable.running()) AS executing
    FROM durable.runs
    WHERE id = @run_id::uuid
    FOR NO KEY UPDATE
), forgotten AS (
    DELETE FROM durable.steps
    USING locked_run
    WHERE NOT locked_run.executing
      AND steps.run_id = locked_run.id
      AND steps.name = ANY (@names::text[])
    RETURNING steps.name
), reopened AS (
    DELETE FROM durable.inputs
    USING locked_run
    WHERE NOT locked_run.executing
      AND inputs.run_id = locked_run.id
      AND inputs.name = ANY (@names::text[])
      AND inputs.digest IS NULL
), audited AS (
    INSERT INTO durable.audit (actor, kind, subject, action, detail)
    SELECT
        @actor::text, 'run', locked_run.id::text, 'forget_steps',
        json_build_object('steps', @names::text[])
    FROM locked_run
    WHERE EXISTS (SELECT FROM forgotten)
)
SELECT
    locked_run.executing::boolean AS executing,
    (SELECT count(*) FROM forgotten) AS forgotten
FROM locked_run;

-- name: ForgetFailures :exec
-- After a retry, in its transaction: forgets the failures that were recorded, and the marks of
-- having given up, of runs of which no other step was recorded later. What was built on a
-- failure keeps it.
-- Index: steps_pkey, inputs_pkey. Locks: the steps and inputs of runs that the transaction has
-- locked. Idempotent: a repeat finds none.
WITH built_on AS MATERIALIZED (
    SELECT steps.run_id, max(steps.at) AS at
    FROM durable.steps
    WHERE steps.run_id = ANY (@ids::uuid[])
      AND steps.kind NOT IN (durable.step_failed(), durable.step_input())
    GROUP BY steps.run_id
), forgotten AS (
    DELETE FROM durable.steps
    WHERE steps.run_id = ANY (@ids::uuid[])
      AND steps.kind = durable.step_failed()
      AND NOT EXISTS (
          SELECT
          FROM built_on
          WHERE built_on.run_id = steps.run_id
            AND built_on.at > steps.at
      )
), reopened AS (
    DELETE FROM durable.inputs
    WHERE inputs.run_id = ANY (@ids::uuid[])
      AND inputs.digest IS NULL
      AND NOT EXISTS (
          SELECT
          FROM built_on
          WHERE built_on.run_id = inputs.run_id
            AND built_on.at > inputs.at
      )
    RETURNING inputs.run_id, inputs.name
)
DELETE FROM durable.steps
USING reopened
WHERE steps.run_id = reopened.run_id
  AND steps.name = reopened.name
  AND steps.kind = durable.step_input();
