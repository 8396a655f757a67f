-- durable.enqueue(key => …) in a transaction of repeatable read or serializable refuses a key
-- whose holder has changed since the snapshot. min_compatible: 15

-- Gives a unique key to a run, unless another one holds it: then that one is returned. In a
-- transaction that reads from a snapshot, a holder may have ended, or may be pending again,
-- without a change of the key: the lock fails then (40001), and is given back at once.
create or replace function durable.take_key(job text, key text, run_id uuid, held_to timestamptz)
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
        if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
            begin
                perform from durable.runs where runs.id = holder.run_id for share skip locked;
                raise exception using errcode = 'DW001';
            exception when sqlstate 'DW001' then
                null;
            end;
        end if;
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
