-- Caps of queues. To programs of before, a capped queue is paused: they leave it to those
-- that know caps, and cannot resume it. min_compatible: 9

alter table durable.queues
    add column cap bigint,
    add column stopped boolean not null default false,
    add constraint queues_capped check (paused or cap is null);
