-- name: InsertRuns
-- InsertRun for as many runs as there is room for. Served by the key of runs.
-- Twice: the ids are there, nothing is stored, and no row is counted.
INSERT INTO runs (id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, trace, args)
VALUES :rows:
ON CONFLICT (id) DO NOTHING;
