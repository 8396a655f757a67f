-- Dead runs that an operator has acknowledged, and dead runs by the time of their death.
-- min_compatible: 9

alter table durable.problems
    add column acknowledged_at timestamptz,
    add column acknowledged_by text;
create index problems_ended on durable.problems ((acknowledged_at is null), ended_at, run_id)
    where state = 4;
