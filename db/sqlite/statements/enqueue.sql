-- name: InsertRuns
-- InsertRun for as many runs as there is room for. Index: the key of runs. Idempotent: a
-- repeat finds the ids, stores nothing, and counts no row.
INSERT INTO runs (
    id, created_at, due_at, expires_at, timeout, lane, max_attempts, on_crash, tags, metadata,
    trace, args
)
VALUES :rows:
ON CONFLICT (id) DO NOTHING;
