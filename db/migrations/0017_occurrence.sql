-- The instant of its schedule that a run is for, so that handlers have it. A program of before
-- stores runs without it. min_compatible: 15

alter table durable.runs add column occurs_at text;
