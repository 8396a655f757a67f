-- The words that the statements in db/queries use for numbers, letters and bits. None of these
-- functions is ever created by the program: the store replaces each word by what it returns
-- before it sends a statement, so the server sees `state = 0` where the statement says
-- `state = durable.pending()`. sqlc reads their types here. To try a statement by hand, load
-- this file with psql after db/schema.sql: the planner then inlines them.
--
-- Each is one line: what it returns is a literal, or stands in brackets. The literals are
-- those of the constants that the comments name; a test compares them.

-- store.State, of a run.
create function durable.pending() returns smallint language sql immutable return 0;
create function durable.running() returns smallint language sql immutable return 1;
create function durable.succeeded() returns smallint language sql immutable return 2;
create function durable.dead() returns smallint language sql immutable return 4;
create function durable.cancelled() returns smallint language sql immutable return 5;
-- Pending or running.
create function durable.is_unfinished(state smallint) returns boolean
    language sql immutable return (state < 2);
create function durable.is_ended(state smallint) returns boolean
    language sql immutable return (state >= 2);
-- Dead or cancelled: it has a row of problems.
create function durable.is_problem(state smallint) returns boolean
    language sql immutable return (state >= 4);

-- store.CrashPolicy.
create function durable.crash_retry() returns smallint language sql immutable return 0;

-- store.OutcomeKind, of an attempt.
create function durable.success() returns smallint language sql immutable return 1;
create function durable.crash() returns smallint language sql immutable return 7;

-- store.StepKind.
create function durable.step_tried() returns smallint language sql immutable return 0;
create function durable.step_failed() returns smallint language sql immutable return 2;
create function durable.step_sleep() returns smallint language sql immutable return 3;
create function durable.step_input() returns smallint language sql immutable return 4;
create function durable.step_children() returns smallint language sql immutable return 5;
-- A result replaces it.
create function durable.step_is_replaced(kind smallint) returns boolean
    language sql immutable return (kind IN (0, 5));

-- store.LinkAwaited, store.LinkParent and store.LinkMember, of runs.links.
create function durable.link_awaited() returns smallint language sql immutable return 1;
create function durable.link_parent() returns smallint language sql immutable return 2;
create function durable.link_member() returns smallint language sql immutable return 4;
-- What is added to the store.Want of a batch, in edges.wants.
create function durable.want_of_batch() returns smallint language sql immutable return 10;

-- store.BatchState.
create function durable.batch_succeeded() returns smallint language sql immutable return 1;

-- rules.Notice, of notices.
create function durable.notice_input() returns smallint language sql immutable return 0;
create function durable.notice_look() returns smallint language sql immutable return 1;
create function durable.notice_ended() returns smallint language sql immutable return 2;
create function durable.notice_orphan() returns smallint language sql immutable return 3;
create function durable.notice_member() returns smallint language sql immutable return 4;

-- store.Span, of stats.
create function durable.minute() returns smallint language sql immutable return 1;

-- store.LimitKind.
create function durable.limit_semaphore() returns smallint language sql immutable return 1;
-- store.LimitAction. Those above full_wait end a run, move it or cancel another.
create function durable.full_default() returns smallint language sql immutable return 0;
create function durable.full_wait() returns smallint language sql immutable return 1;
-- store.LimitState.
create function durable.limit_active() returns smallint language sql immutable return 0;
create function durable.limit_removed() returns smallint language sql immutable return 3;
-- Active or draining.
create function durable.limit_applies(state smallint) returns boolean
    language sql immutable return (state < 2);
-- Off or removed: everything is admitted.
create function durable.limit_is_off(state smallint) returns boolean
    language sql immutable return (state >= 2);

-- store.LimitUntil, of a permit.
create function durable.until_settled() returns text language sql immutable return 's';
create function durable.until_finished() returns text language sql immutable return 'f';
create function durable.until_finished_or_revived() returns text language sql immutable return 'k';
create function durable.until_expires() returns text language sql immutable return 'x';

-- admit.AllPermits: the gate of runs that have the permits of all their gates already.
create function durable.all_permits() returns bigint language sql immutable return 0;
-- admit.LimitOf: a gate's number is that of its limit times 2^43, plus bits of the key's digest.
create function durable.limit_of(gate bigint) returns int
    language sql immutable return (gate >> 43)::int;
-- admit.LimitLine: lines below 2^30 are lanes.
create function durable.line_of_limit(limit_id int) returns int
    language sql immutable return ((1 << 30) + limit_id);
create function durable.line_of_gate(gate bigint) returns int
    language sql immutable return ((1 << 30) + (gate >> 43)::int);
-- A limit as store.LimitUse writes it has a weight or a term: of one that has neither, its gate
-- says everything.
create function durable.says_more(limit_use text) returns boolean
    language sql immutable return (limit_use ~ '[*!]');
-- How many places are in use, at least, where few are free: an eighth of them and one, or less.
create function durable.nearly_full(most int) returns int
    language sql immutable return (most - 1 - most / 8);

-- The number of runs of a lease, from the size of its array: a uuid has 16 bytes, an array of
-- one dimension 20 before the first. The array itself is out of line, and is not read.
create function durable.runs_of(run_ids uuid[]) returns int
    language sql immutable return ((pg_column_size(run_ids) - 20) / 16);
-- waiting.more: runs.limits says more of a run than that it takes one place of one gate.
create function durable.is_more(of_gates bigint[], of_limits text[]) returns boolean
language sql immutable return (
    pg_catalog.cardinality(of_gates) <> 1
    OR pg_catalog.cardinality(of_limits) <> 1
    OR durable.says_more(of_limits[1])
);
-- A column that no index is used for.
create function durable.unindexed(line int) returns int language sql immutable return (line + 0);

-- The beginning of the step that an instant is in.
create function durable.step_of(at timestamptz, step bigint) returns timestamptz
language sql immutable return (
    date_bin(step * interval '1 microsecond', at, timestamptz '2000-01-01 00:00:00+00')
);
-- A part of a room for each of several, rounded up.
create function durable.part_of(room int, several bigint) returns bigint
language sql immutable return ((room + several - 1) / greatest(several, 1));

-- Watch: microseconds in a tenth of a second, and the bits of a lock that number the tenths.
create function durable.tenth() returns int language sql immutable return 100000;
create function durable.tenth_bits() returns int language sql immutable return 4095;

-- What a worker reports of one run, by its id: the fields of an array.
create function durable.outcome_state(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 0);
create function durable.outcome_is_pending(outcomes jsonb, id uuid) returns boolean
    language sql immutable return (outcomes -> (id::text) ->> 0 = '0');
create function durable.outcome_is_ended(outcomes jsonb, id uuid) returns boolean
    language sql immutable return (outcomes -> (id::text) ->> 0 <> '0');
create function durable.outcome_delay(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 1);
create function durable.outcome_refund(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 2);
create function durable.outcome_kind(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 3);
create function durable.outcome_error(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 4);
create function durable.outcome_stack(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 5);
create function durable.outcome_result(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 6);
create function durable.outcome_log(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 7);
create function durable.outcome_took(outcomes jsonb, id uuid) returns text
    language sql immutable return (outcomes -> (id::text) ->> 8);

-- What follows reads tables, as a part of the statement that it is put into.

create function durable.worker_name(of_worker int) returns text language sql stable return (
    SELECT workers.name
    FROM durable.workers
    WHERE workers.id = of_worker
);
create function durable.schedule_name(of_schedule int) returns text language sql stable return (
    SELECT schedules.name
    FROM durable.schedules
    WHERE schedules.id = of_schedule
);
-- Why a run failed the last time: what a problem says, or its last attempt.
create function durable.fault_of(of_run uuid) returns text language sql stable return (
    coalesce(
        (
            SELECT problems.reason
            FROM durable.problems
            WHERE problems.run_id = of_run
        ),
        (
            SELECT attempts.error
            FROM durable.attempts
            WHERE attempts.run_id = of_run
            ORDER BY attempts.fence DESC
            LIMIT 1
        ),
        ''
    )
);

-- What a filter asks for; empty: nothing.
create function durable.schedule_matches(of_schedule int, sought text) returns boolean
language sql stable return (
    sought = ''
    OR of_schedule = (
        SELECT schedules.id
        FROM durable.schedules
        WHERE schedules.name = sought
    )
);
create function durable.worker_matches(of_worker int, sought text) returns boolean
language sql stable return (
    sought = ''
    OR of_worker = ANY (ARRAY(
        SELECT workers.id
        FROM durable.workers
        WHERE workers.name = sought
    ))
);
create function durable.metadata_matches(metadata json, names text[], contents text[])
returns boolean language sql stable return (
    pg_catalog.cardinality(names) = 0
    OR metadata IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM (
            SELECT
                pg_catalog.unnest(names) AS name,
                pg_catalog.unnest(contents) AS value
        ) wanted
        WHERE metadata ->> wanted.name IS DISTINCT FROM wanted.value
    )
);
create function durable.fault_contains(of_run uuid, state smallint, sought text) returns boolean
language sql stable return (
    sought = ''
    OR state <> durable.succeeded() AND pg_catalog.strpos(durable.fault_of(of_run), sought) > 0
);
create function durable.args_contain(args json, spellings text[]) returns boolean
language sql stable return (
    pg_catalog.cardinality(spellings) = 0
    OR EXISTS (
        SELECT
        FROM pg_catalog.unnest(spellings) AS wanted (spelling)
        WHERE pg_catalog.strpos(args::text, wanted.spelling) > 0
    )
);

-- How many places of a gate are in use.
create function durable.used(of_gate bigint) returns bigint language sql stable return (
    SELECT coalesce(sum(permits.k), 0)
    FROM durable.permits
    WHERE permits.gate = of_gate
);
-- From how many places in use on few of a gate are free.
create function durable.few_free_from(of_gate bigint) returns int language sql stable return (
    SELECT durable.nearly_full(limits.most)
    FROM durable.limits
    WHERE limits.id = durable.limit_of(of_gate)
);
-- How many places of a gate a run takes.
create function durable.weight_of(of_run uuid, of_gate bigint) returns int
language sql stable return (
    SELECT coalesce(runs.weights[array_position(runs.gates, of_gate)], 1)
    FROM durable.runs
    WHERE runs.id = of_run
);
-- Whether a run has a permit of one of these gates that outlasts its claim.
create function durable.has_permit(of_run uuid, of_gates bigint[]) returns boolean
language sql stable return (EXISTS (
    SELECT
    FROM durable.permits
    WHERE permits.gate = ANY (of_gates)
      AND permits.owner = of_run
));
-- The gate in whose line a run waits: the first of which it has no permit yet; of a negative one,
-- which stands for several, none of them. With the permits of all: all_permits.
create function durable.waits_at(of_run uuid, of_gates bigint[], of_strict bigint[])
returns bigint language sql stable return (
    coalesce(
        CASE
            WHEN of_strict IS NULL THEN of_gates[1]
            ELSE (
                SELECT of_gates[wanted.place]
                FROM pg_catalog.generate_subscripts(of_gates, 1) AS wanted (place)
                WHERE (
                    of_gates[wanted.place] <> ALL (of_strict)
                    OR NOT EXISTS (
                        SELECT
                        FROM durable.permits
                        WHERE permits.gate = of_gates[wanted.place]
                          AND permits.owner = of_run
                    )
                  )
                  AND (
                    of_gates[wanted.place] > 0
                    OR NOT durable.has_permit(of_run, of_strict)
                  )
                ORDER BY wanted.place
                LIMIT 1
            )
        END,
        durable.all_permits()
    )
);
