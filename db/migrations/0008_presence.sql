-- What workers report of themselves, and what they did, by the minute and the quarter
-- of an hour. min_compatible: 5

alter table durable.workers
    add column present boolean not null default false,
    add column reported_at timestamptz,
    add column reports bigint not null default 0,
    add column report json;
alter table durable.workers set (fillfactor = 50);
create index workers_present on durable.workers (id) where present;
create table durable.stats (
    span      smallint not null,
    queue     text collate "C" not null,
    job       text collate "C" not null,
    at        timestamptz not null,
    enqueued  bigint not null,
    succeeded bigint not null,
    failed    bigint not null,
    dead      bigint not null,
    cancelled bigint not null,
    crashed   bigint not null,
    busy      bigint not null,
    wait      bigint[] not null,
    took      bigint[] not null,
    primary key (span, queue, job, at)
) with (fillfactor = 70);
