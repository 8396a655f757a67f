-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: GuardRun :execrows
-- Index: the key of runs. In the caller's transaction: changes nothing, but takes
-- the write lock of the file, so that no process takes the run over until that
-- transaction ends. Whether a row is counted is the verdict.
UPDATE runs
SET state = 1
WHERE id = @id
  AND claim_id = @claim_id
  AND state = 1;
