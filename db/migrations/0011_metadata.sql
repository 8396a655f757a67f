-- What the enqueuer notes about a run for people and for filters, and runs by their
-- schedules. min_compatible: 9

alter table durable.runs add column metadata json;
create index if not exists runs_schedule on durable.runs (schedule, id) where schedule is not null;
