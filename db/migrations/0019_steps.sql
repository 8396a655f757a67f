-- What handlers record of themselves, step by step, and what runs are sent. A program of before
-- would leave both behind when it deletes a run.
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
    tries  smallint not null default 0,
    name   text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create unique index notices_order on durable.notices (due_at, id);
alter table durable.notices replica identity using index notices_order;
