-- Unique keys, cancel requests, progress, log lines, retention, and who waits for locks.
-- min_compatible: 3

alter table durable.runs
    add column key text collate "C",
    add column cancel text,
    add column trace text;
create table durable.unique_keys (
    job      text collate "C" not null,
    key      text collate "C" not null,
    run_id   uuid not null,
    latest   uuid not null,
    held_to  timestamptz,
    primary key (job, key)
);
create table durable.cancels (
    claim_id uuid not null,
    run_id   uuid not null,
    primary key (claim_id, run_id)
);
create table durable.progress (
    run_id     uuid primary key,
    updated_at timestamptz not null,
    fraction   real,
    note       text,
    checkpoint json
) with (fillfactor = 70);
alter table durable.attempts add column log text;
alter table durable.jobs add column retention bigint not null default 0;
alter table durable.problems add column lane int;
update durable.problems p set lane = abs(r.lane) from durable.runs r where r.id = p.run_id;
delete from durable.problems where lane is null;
alter table durable.problems alter column lane set not null;
create index problems_lane on durable.problems (state, lane, run_id);
create table durable.sweep (
    only_row boolean primary key default true check (only_row),
    position uuid not null default '00000000-0000-0000-0000-000000000000',
    block    bigint not null default -1,
    began_at timestamptz not null default '-infinity',
    sweeper  uuid,
    swept_at timestamptz not null default '-infinity'
);
create index schedules_look on durable.schedules (look_at, name);
create table durable.lock_waits (
    name   text collate "C" not null,
    waiter uuid not null,
    since  timestamptz not null default now(),
    until  timestamptz not null,
    calls  int not null,
    owner  text not null,
    primary key (name, waiter)
);
