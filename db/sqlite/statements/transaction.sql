-- name: Begin
-- Takes the write lock of the file immediately, or fails: a transaction that begins by
-- reading could not become a writer after another has written.
BEGIN IMMEDIATE;

-- name: Commit
COMMIT;

-- name: Rollback
ROLLBACK;

-- name: DataVersion
-- On a connection that is kept: changes when another connection has committed.
PRAGMA data_version;
