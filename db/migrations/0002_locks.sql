-- Named locks, and what operators did. db/schema.sql explains both tables.
-- min_compatible: 1

create table durable.locks (
    name        text collate "C" not null,
    slot        int not null,
    fence       bigint not null default 0,
    claim_id    uuid,
    acquired_at timestamptz,
    expires_at  timestamptz not null default now(),
    owner       text not null default '',
    primary key (name, slot)
) with (fillfactor = 70);
create unique index locks_claim on durable.locks (claim_id) where claim_id is not null;
create index locks_expiry on durable.locks (expires_at);

create table durable.audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default now(),
    actor   text not null,
    kind    text not null,
    subject text not null,
    action  text not null,
    detail  json
);
create index audit_subject on durable.audit (kind, subject, id);
