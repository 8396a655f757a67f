-- Each new limit has a secret, which is part of the numbers of its gates: otherwise a tenant
-- that chooses its own key could find one that shares a gate with another's. A limit that
-- exists keeps its gates. A program of before would not find the gates of new limits.
-- min_compatible: 18

alter table durable.limits add column secret uuid;
alter table durable.limits alter column secret set default gen_random_uuid();
