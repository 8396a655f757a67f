-- What handlers record of themselves, step by step, what runs are sent, and what runs wait for. A
-- program of before would leave these behind when it deletes a run.
-- min_compatible: 19

create table durable.steps (
    run_id uuid not null,
    at     timestamptz not null default now(),
    until  timestamptz,
    took   bigint,
    tries  int not null,
    kind   smallint not null,
    name   text collate "C" not null,
    value  json,
    error  text,
    code   text,
    primary key (run_id, name)
);

create table durable.inputs (
    run_id uuid not null,
    at     timestamptz not null default now(),
    size   int not null,
    n      smallint not null default 0,
    name   text collate "C" not null,
    sender text,
    digest text,
    value  json,
    primary key (run_id, name, n)
);

create table durable.notices (
    id     bigint generated always as identity,
    due_at timestamptz not null default now(),
    run_id uuid not null,
    cursor uuid,
    tries  smallint not null default 0,
    kind   smallint not null default 0,
    name   text collate "C" not null default ''
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create unique index notices_order on durable.notices (due_at, id);
alter table durable.notices replica identity using index notices_order;

create table durable.edges (
    waiter uuid not null,
    source uuid not null,
    wants  smallint not null,
    any_of smallint not null default 0,
    met    boolean not null default false,
    name   text collate "C" not null default '',
    primary key (waiter, name, any_of, source, wants)
);
create index edges_source on durable.edges (source, waiter);

alter table durable.runs add column links smallint;

create function durable.note_end() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
begin
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
create trigger runs_end_noted after update of state on durable.runs
    for each row when (new.links is not null and new.state >= 2)
    execute function durable.note_end();

create function durable.note_deletion() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
begin
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
create trigger runs_deletion_noted after delete on durable.runs
    for each row when (old.links is not null)
    execute function durable.note_deletion();
