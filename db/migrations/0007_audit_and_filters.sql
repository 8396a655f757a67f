-- One row of the audit for a change to all runs of a filter, and runs by their keys.
-- min_compatible: 5

alter table durable.audit add column runs bigint;
create index if not exists runs_key on durable.runs (key, id) where key is not null;
