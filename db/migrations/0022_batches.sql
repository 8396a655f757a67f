-- Batches: runs that are counted together. A program of before would delete members of a batch
-- that has not ended.
-- min_compatible: 22

create table durable.members (
    run_id uuid primary key,
    batch  uuid not null
);
create unique index members_batch on durable.members (batch, run_id);

create table durable.batches (
    id         uuid primary key,
    owner      uuid,
    cursor     uuid,
    created_at timestamptz not null default now(),
    open_until timestamptz,
    ends_by    timestamptz,
    look_at    timestamptz,
    failed_at  timestamptz,
    ended_at   timestamptz,
    members    bigint not null default 0,
    succeeded  bigint not null default 0,
    dead       bigint not null default 0,
    cancelled  bigint not null default 0,
    state      smallint not null default 0,
    closed     boolean not null,
    fail_fast  boolean not null,
    cancelling boolean not null default false,
    name       text not null,
    reason     text not null default ''
) with (fillfactor = 50);
create index batches_look on durable.batches (look_at) where look_at is not null;
create index batches_owner on durable.batches (owner) where not closed;
create index batches_ended on durable.batches (ended_at) where ended_at is not null;

create table durable.batch_changes (
    id        bigint generated always as identity,
    batch     uuid not null,
    members   int not null default 0,
    succeeded int not null default 0,
    dead      int not null default 0,
    cancelled int not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create unique index batch_changes_batch on durable.batch_changes (batch, id);
alter table durable.batch_changes replica identity using index batch_changes_batch;

create or replace function durable.note_end() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
begin
    if new.links & 4 <> 0 then
        insert into durable.batch_changes (batch, succeeded, dead, cancelled)
        select
            members.batch,
            (new.state = 2)::int - (old.state = 2)::int,
            (new.state = 4)::int - (old.state = 4)::int,
            (new.state = 5)::int - (old.state = 5)::int
        from durable.members
        where members.run_id = new.id and new.state <> old.state;
    end if;
    if new.state < 2 then
        insert into durable.notices (run_id, kind)
        select members.run_id, 4
        from durable.members
        join durable.batches on batches.id = members.batch
        where new.links & 4 <> 0
          and members.run_id = new.id
          and batches.cancelling
          and batches.ended_at is null;
        return null;
    end if;
    if new.links & 1 <> 0 then
        insert into durable.notices (run_id, kind) values (new.id, 2);
    end if;
    if new.links & 2 <> 0 and new.state = 5 then
        insert into durable.notices (run_id, kind)
        select edges.source, 3
        from durable.edges
        where edges.waiter = new.id and edges.name <> '';
    end if;
    return null;
end
$function$;
drop trigger runs_end_noted on durable.runs;
create trigger runs_end_noted after update of state on durable.runs
    for each row when (new.links is not null and (new.state >= 2 or old.state >= 2))
    execute function durable.note_end();

create or replace function durable.note_deletion() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
begin
    if old.links & 4 <> 0 then
        with gone as (
            delete from durable.members
            where members.run_id = old.id
            returning members.batch
        )
        insert into durable.batch_changes (batch, members, succeeded, dead, cancelled)
        select
            gone.batch, -1, -(old.state = 2)::int, -(old.state = 4)::int, -(old.state = 5)::int
        from gone;
    end if;
    if old.links & 1 <> 0 then
        insert into durable.notices (run_id, kind) values (old.id, 2);
    end if;
    if old.links & 2 <> 0 and old.state < 2 then
        insert into durable.notices (run_id, kind)
        select edges.source, 3
        from durable.edges
        where edges.waiter = old.id and edges.name <> '';
    end if;
    return null;
end
$function$;
