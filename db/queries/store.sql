-- name: Guard :exec
-- Heads every pipelined batch of statements that must keep to their indexes: a
-- plan made while a table was empty is kept when it grows. What has no index
-- looks dear then, and must not be compiled for it; and the plans are the same
-- for any values, so none is made anew for each call. Local to the
-- transaction, so it works behind a transaction pooler. No rows, no locks.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('lock_timeout', @lock_timeout::text, true), set_config('statement_timeout', @statement_timeout::text, true);

-- name: GuardSession :exec
-- Guard for as long as the session lasts, where no pooler may give it to others.
-- Batches that would set the same need no Guard of their own.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('lock_timeout', @lock_timeout::text, false), set_config('statement_timeout', @statement_timeout::text, false);

-- name: Pin :exec
-- Keeps functions and operators of other schemas out of the statements after it
-- in the same transaction, where a connection could not be made to do so as a
-- whole. No rows, no locks.
SELECT pg_catalog.set_config('search_path', 'pg_catalog', true);

-- name: Limits :exec
-- Bounds the statements after it in the same transaction. No rows, no locks.
SELECT set_config('lock_timeout', @lock_timeout::text, true), set_config('statement_timeout', @statement_timeout::text, true);

-- name: Idle :exec
-- Ends the transaction of a process that stops in the middle of it. For
-- transactions of several round trips. No rows, no locks.
SELECT set_config('idle_in_transaction_session_timeout', '10s', true);

-- name: Begin :exec
-- Heads a batch whose transaction goes on after it. No rows, no locks.
BEGIN ISOLATION LEVEL READ COMMITTED;

-- name: Commit :exec
-- Ends the last batch of a transaction. Not reached when a statement before it
-- fails.
COMMIT;

-- name: Rollback :exec
-- Lets the connection be used again after a batch that has failed.
ROLLBACK;

-- name: Unlimited :exec
-- Lifts the limits that a role or a database may have for the statements after
-- it in the same transaction. No rows, no locks.
SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);

-- name: ExistingTables :many
-- Which of these are tables of the schema. Reads the catalog. No locks.
SELECT c.relname::text AS name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = @schema_name::text AND c.relname = ANY (@names::text[]) AND c.relkind = 'r'
ORDER BY c.relname;

-- name: TableUsers :many
-- Who has locked these tables, the longest first: whoever that is keeps a
-- migration from them. Reads pg_locks and pg_stat_activity. No locks.
SELECT coalesce(a.pid, 0)::int AS pid, coalesce(a.application_name, '')::text AS application, coalesce(a.usename::text, '')::text AS role,
       coalesce(a.state, a.backend_type, '')::text AS state,
       coalesce(extract(epoch FROM clock_timestamp() - min(a.xact_start)), 0)::bigint AS open_seconds,
       left(coalesce(a.query, ''), 100)::text AS query
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND n.nspname = @schema_name::text AND c.relname = ANY (@names::text[])
GROUP BY a.pid, a.application_name, a.usename, a.state, a.backend_type, a.query
ORDER BY min(a.xact_start)
LIMIT 3;

-- name: Server :one
-- What a start-up check needs. Comes before anything is pinned: every call in it
-- is exactly one of pg_catalog's. No rows, no locks.
SELECT pg_is_in_recovery() AS replica, current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('server_version_num')::int AS version, current_setting('transaction_isolation') AS isolation,
       (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000::numeric)::bigint AS statement_timeout,
       now()::timestamptz AS now, current_setting('server_encoding') AS encoding,
       current_setting('search_path') AS search_path, pg_backend_pid()::bigint AS pid;

-- name: HasMeta :one
-- Whether any migration has been applied. Asked of the catalog as of now:
-- to_regclass may answer from a cache that is older than a lock just waited
-- for. No locks.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = @schema_name::text AND c.relname = 'meta')::boolean AS found;

-- name: Meta :one
-- One row by primary key, no locks.
SELECT version, min_compatible FROM durable.meta WHERE only_row;

-- name: SetMeta :exec
-- One row by primary key; runs under the migration's advisory lock. Twice: the
-- same row.
INSERT INTO durable.meta (version, min_compatible) VALUES (@version, @min_compatible)
ON CONFLICT (only_row) DO UPDATE SET version = excluded.version, min_compatible = excluded.min_compatible, migrated_at = now();

-- name: Notify :exec
-- Hints, one notification for each payload; nothing waits for their flush. Twice:
-- second hints for nothing.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(@channel::text, p.payload)
FROM (SELECT unnest(@payloads::text[]) payload) p;

-- name: JoinCrew :exec
-- One advisory lock, shared, of the session that listens: who holds it listens for
-- the same jobs on the same queues. Nobody takes it alone, so it never waits, and it
-- ends with the connection. Twice: held twice.
SELECT pg_advisory_lock_shared(@class::int, @crew::int);

-- name: Crew :many
-- The lock table of the server; no locks, no rows. Who listens for the same: the
-- sessions that hold the crew's lock.
SELECT l.pid::int AS pid, (l.pid = pg_backend_pid())::boolean AS self
FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.classid = (@class::int)::oid AND l.objid = (@crew::int)::oid;
