-- Statements for the caller's transaction.

-- name: MainFile
SELECT file
FROM pragma_database_list
WHERE name = 'main';

-- name: Savepoint
SAVEPOINT durable_enqueue;

-- name: ReleaseSavepoint
RELEASE durable_enqueue;

-- name: RollbackToSavepoint
ROLLBACK TO durable_enqueue;
