-- Locks of a program of the second schema.
update durable.meta set version = 2, min_compatible = 1;
insert into durable.locks (name, slot, fence, claim_id, acquired_at, expires_at, owner) values
('held', 0, 4000000000000001, '00000000-0000-4000-8000-0000000000aa', now(), now() + interval '1 hour', 'old'),
('free', 0, 4000000000000005, null, now(), now(), 'old'), ('free', 1, 4000000000000009, null, now(), now(), 'old');
insert into durable.audit (actor, kind, subject, action, detail) values ('ada', 'lock', 'free', 'release', '{"slot":0,"owner":"old","fence":4000000000000005,"reason":"why"}');
