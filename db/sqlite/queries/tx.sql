-- name: GuardRun :execrows
-- Served by the key of runs. In a transaction of the caller's: changes nothing,
-- but takes the write lock of the file, so that nobody takes the run over until
-- that transaction ends. Whether a row is counted is the verdict.
UPDATE runs SET state = 1 WHERE id = @id AND claim_id = @claim_id AND state = 1;
