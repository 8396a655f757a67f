-- Statements for a transaction of the caller's.

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
