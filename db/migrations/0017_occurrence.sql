-- The instant of its schedule that a run is for, so that handlers have it, and the schedule's
-- name, which outlives the schedule. A program of before stores runs without them.
-- min_compatible: 15

alter table durable.runs
    add column occurs_at text,
    add column schedule_name text;
