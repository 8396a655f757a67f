-- Each new limit has a secret, which its gates' numbers are made with: otherwise who chooses
-- keys could find one that shares a gate with somebody else's. A limit that exists keeps its
-- gates. A program of before would not find the gates of new limits. min_compatible: 18

alter table durable.limits add column secret uuid;
alter table durable.limits alter column secret set default gen_random_uuid();
