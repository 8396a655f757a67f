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
-- A column that no index is used for.
create function durable.unindexed(line int) returns int language sql immutable return (line + 0);

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
