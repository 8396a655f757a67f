-- Many leases of one process expire together. A program that does not know beats
-- would take a lease that follows one for one that never expires. min_compatible: 5

create table durable.beats (
    id         uuid primary key,
    expires_at timestamptz not null,
    before     timestamptz not null,
    duration   bigint not null
) with (fillfactor = 50);
alter table durable.leases alter column expires_at drop not null, add column beat uuid;
create index leases_beat on durable.leases (beat) where beat is not null;
