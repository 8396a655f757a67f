-- What the code of a job says to programs that show its runs: its earlier names, and what
-- is hidden. min_compatible: 9

alter table durable.jobs add column code json;
