-- Pragmas, which sqlc cannot read. None of them changes anything.

-- name: ExamineJournal
PRAGMA journal_mode;

-- name: ExamineSynchronous
PRAGMA synchronous;

-- name: ExamineIntegrity
-- Reads the whole file, without comparing indexes with their tables.
PRAGMA quick_check(1);
