-- Functions that enqueue runs from plain SQL. min_compatible: 9

-- Functions for who enqueues from plain SQL: triggers, and programs in other languages. They
-- do what a Client does, with the privileges of their caller, in the transaction of the
-- caller. Other schemas cannot come between: their search_path is their own. Nor does it
-- matter how the caller writes strings: those that have a backslash bring that setting too.

-- A number as wake-ups have it.
create function durable.base36(number bigint) returns text
language plpgsql immutable strict
set search_path = pg_catalog, pg_temp
as $function$
declare
    rest bigint := number;
    text_of text := '';
begin
    loop
        text_of := substr('0123456789abcdefghijklmnopqrstuvwxyz', (rest % 36)::int + 1, 1)
            || text_of;
        rest := rest / 36;
        exit when rest = 0;
    end loop;
    return text_of;
end
$function$;

-- The microseconds of an interval, which has to be from 0 to a hundred years.
create function durable.micros(what text, given interval) returns bigint
language plpgsql immutable strict
set search_path = pg_catalog, pg_temp
as $function$
begin
    if extract(epoch from given) not between 0 and 3153600000 then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'durable: invalid: ' || what || ' ' || given || ': want 0 to 36500 days';
    end if;
    return (extract(epoch from given) * 1000000)::bigint;
end
$function$;

-- Refuses args that not every engine could store and give back as they were. What is left
-- of a text without its strings is as deep as the passes that it takes to remove its
-- innermost brackets.
create function durable.check_args(args json) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $function$
declare
    written text := args::text;
    brackets text;
    escaped text;
    fault text;
begin
    if written is null then
        fault := ': not valid JSON';
    elsif octet_length(written) > 262144 then
        fault := ': ' || octet_length(written) || ' bytes, want at most 262144; '
            || 'keep large data elsewhere and pass a reference';
    elsif length(written) - length(translate(written, '[{', '')) > 128 then
        brackets := regexp_replace(written, '"(\\.|[^"\\])*"', '', 'g');
        brackets := regexp_replace(brackets, '[^][{}]', '', 'g');
        brackets := translate(brackets, '[]{}', '()()');
        for pass in 1..128 loop
            brackets := replace(brackets, '()', '');
        end loop;
        if brackets <> '' then
            fault := ': nested deeper than 128';
        end if;
    end if;
    if fault is null and written ~ '\\u(0000|fffd|d|D)' then
        escaped := replace(written, '\\', '');
        if escaped ~ '\\u0000' then
            fault := ': holds the character NUL (\u0000)';
        elsif escaped ~ '\\u[fF][fF][fF][dD]' then
            fault := ': not valid UTF-8';
        elsif regexp_replace(
            escaped, '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g'
        ) ~ '\\u[dD][89a-fA-F]' then
            fault := ': holds a lone surrogate';
        end if;
    end if;
    if fault is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'durable: invalid: args' || fault;
    end if;
end
$function$;

-- Refuses labels that a Client would refuse.
create function durable.check_labels(tags text[], metadata json, trace text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $function$
declare
    control constant text := '[\u0001-\u001f\u007f-\u009f]';
    fault text;
    size int := 0;
    pair record;
    tag text;
begin
    if cardinality(tags) > 32 then
        fault := cardinality(tags) || ' tags: want at most 32';
    end if;
    foreach tag in array coalesce(tags, '{}') loop
        if coalesce(tag, '') = '' or octet_length(tag) > 128 or tag ~ control then
            fault := 'tag "' || coalesce(left(tag, 150), '')
                || '": want 1 to 128 bytes of text without control characters';
        end if;
    end loop;
    if json_typeof(metadata) not in ('object', 'null') then
        fault := 'metadata: want an object of texts';
    elsif json_typeof(metadata) = 'object' then
        for pair in
            select fields.key as name, fields.value as content
            from json_each(metadata) as fields
        loop
            size := size + octet_length(pair.name) + octet_length(pair.content #>> '{}');
            if json_typeof(pair.content) <> 'string' then
                fault := 'metadata ' || pair.name || ': want text';
            elsif pair.name = '' or octet_length(pair.name) > 128 or pair.name ~ '='
                or pair.name ~ control
            then
                fault := 'metadata name "' || left(pair.name, 150)
                    || '": want 1 to 128 bytes of text without "=" and control characters';
            end if;
        end loop;
        if fault is null and size > 4096 then
            fault := 'metadata: ' || size || ' bytes, want at most 4096';
        end if;
    end if;
    if length(trace) > 512 then
        fault := 'trace: ' || length(trace) || ' bytes, want at most 512';
    elsif trace collate "C" !~ '^[ -~]*$' then
        fault := 'trace: want printable ASCII';
    end if;
    if fault is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'durable: invalid: ' || fault;
    end if;
end
$function$;

-- The number of a lane. One that is new is made in the caller's transaction, and others that
-- need the same lane, or pause its queue, wait for that: call this before, in a transaction of
-- its own, if yours are long.
create function durable.lane(queue text, job text, priority int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
#variable_conflict use_column
declare
    number int;
begin
    for try in 1..2 loop
        select lanes.id into number
        from durable.lanes
        where lanes.queue = lane.queue
          and lanes.job = lane.job
          and lanes.priority = lane.priority;
        if found then
            return number;
        end if;
        insert into durable.queues (name) values (lane.queue) on conflict do nothing;
        perform from durable.queues where queues.name = lane.queue for share;
        insert into durable.lanes (queue, job, priority, paused)
        select lane.queue, lane.job, lane.priority, queues.paused
        from durable.queues
        where queues.name = lane.queue
        on conflict do nothing;
    end loop;
    raise exception using errcode = 'serialization_failure',
        message = 'durable: another transaction has just made the lane: begin it again';
end
$function$;

-- Gives a unique key to a run, unless another one holds it: then that one is returned.
create function durable.take_key(job text, key text, run_id uuid, held_to timestamptz)
returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
#variable_conflict use_column
declare
    holder durable.unique_keys%rowtype;
    holder_state smallint;
begin
    for try in 1..100 loop
        insert into durable.unique_keys (job, key, run_id, latest, held_to)
        values (take_key.job, take_key.key, take_key.run_id, take_key.run_id, take_key.held_to)
        on conflict do nothing;
        if found then
            return null;
        end if;
        select unique_keys.* into holder
        from durable.unique_keys
        where unique_keys.job = take_key.job
          and unique_keys.key = take_key.key
        for update;
        continue when not found;
        select runs.state into holder_state
        from durable.runs
        where runs.id = holder.run_id;
        if found and (holder_state in (0, 1) or holder.latest = take_key.run_id
            or coalesce(holder.held_to > clock_timestamp(), false))
        then
            return holder.run_id;
        end if;
        update durable.unique_keys
        set run_id = take_key.run_id, latest = take_key.run_id, held_to = take_key.held_to
        where unique_keys.job = take_key.job
          and unique_keys.key = take_key.key;
        return null;
    end loop;
    raise exception using errcode = 'serialization_failure',
        message = 'durable: the holder of the key has changed again and again: begin it again';
end
$function$;

-- Stores a run and returns its id, or that of the run which is there already: with the same
-- id, or with the same key. What is null is as the job is declared.
-- Index: jobs_pkey, lanes (queue, job, priority), unique_keys_pkey, runs_pkey. Locks: the key,
-- and what it inserts.
create function durable.enqueue(
    job text,
    args json default '{}',
    queue text default null,
    priority int default null,
    due_at timestamptz default null,
    after interval default null,
    expires_at timestamptz default null,
    timeout interval default null,
    max_attempts int default null,
    on_crash text default null,
    tags text[] default null,
    metadata json default null,
    trace text default null,
    key text default null,
    held_for interval default null,
    id uuid default null,
    undeclared boolean default false,
    wake boolean default true
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $function$
#variable_conflict use_column
declare
    name constant text := '^[A-Za-z0-9_.:/@-]{1,128}$';
    declared durable.jobs%rowtype;
    fault text;
    delay bigint := coalesce(durable.micros('after', enqueue.after), 0);
    held bigint := coalesce(durable.micros('key held for', enqueue.held_for), 0);
    limited bigint := durable.micros('timeout', enqueue.timeout);
    lane_of int;
    due timestamptz := enqueue.due_at;
    ahead bigint;
    made uuid;
    holder uuid;
begin
    select jobs.* into declared from durable.jobs where jobs.name = enqueue.job;
    if coalesce(enqueue.job, '') collate "C" !~ name then
        fault := 'job name "' || coalesce(left(enqueue.job, 150), '')
            || '": want 1 to 128 of letters, digits and _ . : / @ -';
    elsif declared.name is null and not enqueue.undeclared then
        raise exception using errcode = 'undefined_object',
            message = 'durable: unknown job "' || enqueue.job || '"',
            hint = 'Start a worker that has it, or pass undeclared => true.';
    elsif json_typeof(declared.limits) = 'array' and json_array_length(declared.limits) > 0 then
        raise exception using errcode = 'feature_not_supported',
            message = 'durable: the job "' || enqueue.job || '" has limits, '
                || 'whose keys follow from its args in Go: ' || declared.limits,
            hint = 'Enqueue it with a Client, the command or the JSON API.';
    end if;
    queue := coalesce(enqueue.queue, declared.queue, 'default');
    priority := coalesce(enqueue.priority, declared.priority, 0);
    max_attempts := coalesce(enqueue.max_attempts, declared.max_attempts, 3);
    limited := coalesce(limited, declared.timeout, 0);
    if fault is not null then
        null;
    elsif enqueue.queue collate "C" !~ name then
        fault := 'queue name "' || left(enqueue.queue, 150)
            || '": want 1 to 128 of letters, digits and _ . : / @ -';
    elsif enqueue.priority not between -4 and 4 then
        fault := 'priority ' || enqueue.priority || ': want -4 to 4';
    elsif enqueue.max_attempts not between 1 and 10000 then
        fault := 'max attempts ' || enqueue.max_attempts || ': want 1 to 10000';
    elsif limited between 1 and 999 then
        fault := 'timeout ' || enqueue.timeout || ': want 0 for none, or 1ms to 36500 days';
    elsif enqueue.on_crash not in ('retry', 'dead') then
        fault := 'crash policy "' || left(enqueue.on_crash, 150) || '": want retry or dead';
    elsif delay <> 0 and enqueue.due_at is not null then
        fault := 'both at and after are given';
    elsif enqueue.due_at
        not between '1970-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'
    then
        fault := 'at ' || enqueue.due_at || ': want a year from 1970 to 9999';
    elsif enqueue.expires_at
        not between '1970-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'
    then
        fault := 'expires at ' || enqueue.expires_at || ': want a year from 1970 to 9999';
    elsif enqueue.key = '' then
        fault := 'the key is empty';
    elsif octet_length(enqueue.key) > 255 or enqueue.key ~ '[\u0001-\u001f\u007f-\u009f]' then
        fault := 'key "' || left(enqueue.key, 300)
            || '": want 1 to 255 bytes of text without control characters';
    elsif enqueue.key is null and held <> 0 then
        fault := 'the key is empty';
    elsif enqueue.id::text !~ '^.{14}7' then
        fault := 'id is not a version 7 UUID';
    end if;
    if fault is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'durable: invalid: ' || fault;
    end if;
    perform durable.check_args(enqueue.args);
    perform durable.check_labels(enqueue.tags, enqueue.metadata, enqueue.trace);

    made := coalesce(enqueue.id, encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid()) placing
        substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid);
    if enqueue.id is not null then
        perform from durable.runs where runs.id = made;
        if found then
            return made;
        end if;
    end if;
    lane_of := durable.lane(enqueue.queue, enqueue.job, enqueue.priority);
    if enqueue.key is not null then
        holder := durable.take_key(enqueue.job, enqueue.key, made, case
            when held > 0 then clock_timestamp() + held::float8 * interval '1 microsecond'
        end);
        if holder is not null then
            return holder;
        end if;
    end if;
    due := coalesce(due, statement_timestamp() + delay::float8 * interval '1 microsecond');
    insert into durable.runs (
        id, lane, due_at, expires_at, timeout, max_attempts, on_crash, args, tags, metadata,
        trace, key
    )
    values (
        made, lane_of, due, enqueue.expires_at, nullif(limited, 0), enqueue.max_attempts,
        case enqueue.on_crash
            when 'retry' then 0
            when 'dead' then 1
            else coalesce(declared.on_crash, 0)
        end,
        enqueue.args,
        case when cardinality(enqueue.tags) > 0 then enqueue.tags end,
        case when enqueue.metadata::text !~ '^\s*(\{\s*\}|null)\s*$' then enqueue.metadata end,
        nullif(enqueue.trace, ''),
        enqueue.key
    )
    on conflict do nothing;
    if not found then
        return made;
    end if;
    insert into durable.ready (lane, due_at, run_id) values (lane_of, due, made);

    -- Those of one transaction that say the same are one notification.
    ahead := greatest(floor(extract(epoch from due - clock_timestamp()) * 10), 0) * 100;
    if enqueue.wake and ahead <= 60000 then
        perform pg_notify(pg_namespace.nspname || '_wake', 'sql d'
            || durable.base36(pg_current_xact_id()::text::bigint % 2147483646 + 1)
            || ',0,0,0;' || durable.base36(lane_of) || ',0,1,' || durable.base36(ahead))
        from pg_class
        join pg_namespace on pg_namespace.oid = pg_class.relnamespace
        where pg_class.oid = 'durable.runs'::regclass;
    end if;
    return made;
end
$function$;

-- `migrate grants` says who may call them.
revoke execute on function
    durable.base36, durable.micros, durable.check_args, durable.check_labels, durable.lane,
    durable.take_key, durable.enqueue
from public;
