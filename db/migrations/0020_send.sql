-- Functions that send inputs to runs from plain SQL. min_compatible: 19

-- Stores an input of a run that has not ended, with a notice of it, and returns the run. The
-- first of a name stands: the same text again changes nothing, and another one is refused. It
-- waits only for another transaction that sends the same name to the same run.
-- Index: runs_pkey, inputs_pkey. Locks: what it inserts.
create function durable.send(
    run_id uuid,
    name text,
    value json,
    wake boolean default true
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $function$
#variable_conflict use_column
declare
    payload constant text := send.value::text;
    digest_of constant text := encode(sha256(
        convert_to(send.name, 'UTF8') || '\x00'::bytea || convert_to(payload, 'UTF8')
    ), 'hex');
    of_run constant text := 'input "' || left(send.name, 150) || '" of run ' || send.run_id;
    run_state smallint;
    number bigint;
    bytes bigint;
    known text;
    fault text;
    -- What it is in Go: ErrInvalid, unless said otherwise.
    class text := 'invalid_parameter_value';
begin
    if coalesce(send.name, '') = '' or octet_length(send.name) > 128
        or send.name ~ '[\u0001-\u001f\u007f-\u009f]'
    then
        fault := 'name "' || coalesce(left(send.name, 150), '')
            || '": want 1 to 128 bytes of text without control characters';
    elsif send.run_id is null then
        fault := 'want either a run or the unique key of one';
    end if;
    if fault is not null then
        raise exception using errcode = class,
            message = 'durable: invalid: input "' || coalesce(left(send.name, 150), '') || '": '
                || fault;
    end if;
    begin
        perform durable.check_args(send.value);
    exception when invalid_parameter_value then
        raise exception using errcode = class,
            message = replace(sqlerrm, 'invalid: args',
                'invalid: input "' || left(send.name, 150) || '": value');
    end;

    select runs.state into run_state from durable.runs where runs.id = send.run_id;
    if not found then
        raise exception using errcode = 'no_data_found',
            message = 'durable: run ' || send.run_id || ': not found';
    end if;
    select count(inputs.size), coalesce(sum(inputs.size), 0) into number, bytes
    from durable.inputs
    where inputs.run_id = send.run_id;
    if run_state in (0, 1) and number < 1000
        and bytes + octet_length(payload) <= 8388608
    then
        insert into durable.inputs (run_id, size, name, digest, value)
        values (send.run_id, octet_length(payload), send.name, digest_of, send.value)
        on conflict do nothing;
        if found then
            insert into durable.notices (run_id, name) values (send.run_id, send.name);
            if send.wake then
                perform pg_notify(pg_namespace.nspname || '_wake',
                    'sql n' || replace(send.run_id::text, '-', ''))
                from pg_class
                join pg_namespace on pg_namespace.oid = pg_class.relnamespace
                where pg_class.oid = 'durable.runs'::regclass;
            end if;
            return send.run_id;
        end if;
    end if;

    select coalesce(inputs.digest, '') into known
    from durable.inputs
    where inputs.run_id = send.run_id
      and inputs.name = send.name;
    if found and known = digest_of then
        return send.run_id;
    elsif found then
        class := 'object_not_in_prerequisite_state';
        fault := 'conflict: ' || of_run || case known
            when '' then ': the run has given up waiting for it'
            else ' was sent before, with another value'
        end;
    elsif run_state not in (0, 1) then
        class := 'object_not_in_prerequisite_state';
        fault := 'conflict: ' || of_run || ': the run has ended: it is ' || case run_state
            when 2 then 'succeeded'
            when 4 then 'dead'
            else 'cancelled'
        end;
    elsif number >= 1000 then
        fault := 'invalid: ' || of_run || ': the run has ' || number
            || ' inputs, the most there may be';
    elsif bytes + octet_length(payload) > 8388608 then
        fault := 'invalid: ' || of_run || ': the run''s inputs have ' || bytes || ' bytes; with '
            || octet_length(payload) || ' more they have more than 8388608';
    else
        class := 'serialization_failure';
        fault := of_run || ' could not be stored beside another one; send it again';
    end if;
    raise exception using errcode = class, message = 'durable: ' || fault;
end
$function$;

-- Sends an input to the unfinished run that holds a unique key of a job, as durable.send does.
-- Index: unique_keys_pkey, runs_pkey, inputs_pkey. Locks: as durable.send.
create function durable.send_to(
    job text,
    key text,
    name text,
    value json,
    wake boolean default true
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $function$
#variable_conflict use_column
declare
    holder uuid;
    fault text;
begin
    if coalesce(send_to.key, '') = '' then
        fault := 'want either a run or the unique key of one';
    elsif coalesce(send_to.job, '') collate "C" !~ '^[A-Za-z0-9_.:/@-]{1,128}$' then
        fault := 'job name "' || coalesce(left(send_to.job, 150), '')
            || '": want 1 to 128 of letters, digits and _ . : / @ -';
    end if;
    if fault is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'durable: invalid: input "' || coalesce(left(send_to.name, 150), '')
                || '": ' || fault;
    end if;
    select runs.id into holder
    from durable.unique_keys
    join durable.runs on runs.id = unique_keys.run_id
    where unique_keys.job = send_to.job
      and unique_keys.key = send_to.key
      and runs.state in (0, 1);
    if not found then
        raise exception using errcode = 'no_data_found',
            message = 'durable: no unfinished run of job ' || send_to.job || ' holds the key "'
                || left(send_to.key, 300) || '": not found';
    end if;
    return durable.send(holder, send_to.name, send_to.value, send_to.wake);
end
$function$;

-- `migrate grants` says who may call them.
revoke execute on function durable.send, durable.send_to from public;
