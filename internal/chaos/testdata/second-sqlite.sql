-- Locks of a program of the second schema.
INSERT INTO locks (name, slot, fence, claim_id, acquired_at, expires_at, owner) VALUES
('held', 0, 4000000000000001, X'000000000000400080000000000000AA', 1, 4000000000000000, 'old'),
('free', 0, 4000000000000005, NULL, 1, 1, 'old'), ('free', 1, 4000000000000009, NULL, 1, 1, 'old');
INSERT INTO audit (at, actor, kind, subject, action, detail) VALUES
(1, 'ada', 'lock', 'free', 'release', '{"slot":0,"owner":"old","fence":4000000000000005,"reason":"why"}');
