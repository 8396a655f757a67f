-- name: Guard :exec
-- Heads every pipelined batch of statements that must keep to their indexes: a plan that
-- was built while a table was empty is kept when it grows. What has no index looks
-- expensive then, and must not be compiled for it; and the plans are the same for any
-- values, so none is built again for each call. Local to the transaction, so it works
-- behind a transaction pooler. No rows, no locks.
SELECT
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('lock_timeout', @lock_timeout::text, true),
    set_config('statement_timeout', @statement_timeout::text, true);

-- name: GuardSession :one
-- Guard for as long as the session lasts, where no pooler may give it to others.
-- Batches that would set the same need no Guard, and no Idle, of their own. Returns whether
-- the server is a standby.
-- Idempotent: a repeat sets the same.
SELECT pg_is_in_recovery() AS standby
FROM (
    SELECT
        set_config('enable_seqscan', 'off', false),
        set_config('enable_bitmapscan', 'off', false),
        set_config('jit', 'off', false),
        set_config('plan_cache_mode', 'force_generic_plan', false),
        set_config('idle_in_transaction_session_timeout', '10s', false),
        set_config('lock_timeout', @lock_timeout::text, false),
        set_config('statement_timeout', @statement_timeout::text, false)
    OFFSET 0
) settings;

-- name: Seal :exec
-- For a transaction that finds what an earlier one of the same call has committed, and writes
-- nothing. That commit may have been cancelled while it waited for a synchronous standby: it
-- is then seen here, and a failover may still take it back. The end of a transaction that
-- writes nothing waits for no standby. This one locks a row, which the WAL records, and so
-- waits for all that was committed before.
-- Index: queues_pkey. Locks: the first queue, shared: only its deletion would wait.
-- Idempotent: a repeat locks it again.
SELECT
FROM durable.queues
ORDER BY name
LIMIT 1
FOR KEY SHARE;

-- name: Pin :exec
-- Keeps functions and operators of other schemas out of the statements after it
-- in the same transaction, where a connection could not be set up to do so as a
-- whole. No rows, no locks.
SELECT pg_catalog.set_config('search_path', 'pg_catalog', true);

-- name: OperatorSession :exec
-- Lets a session only read, and bounds its statements, for as long as it lasts: where no
-- pooler may give it to others. No rows, no locks.
SELECT
    set_config('default_transaction_read_only', 'on', false),
    set_config('statement_timeout', @statement_timeout::text, false);

-- name: ReadOnly :exec
-- Lets the transaction only read from here on. No rows, no locks.
SELECT pg_catalog.set_config('transaction_read_only', 'on', true);

-- name: Limits :exec
-- Bounds the statements after it in the same transaction. No rows, no locks.
SELECT
    set_config('lock_timeout', @lock_timeout::text, true),
    set_config('statement_timeout', @statement_timeout::text, true);

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
SELECT
    set_config('statement_timeout', '0', true),
    set_config('lock_timeout', '0', true);

-- name: ExistingTables :many
-- Which of these are tables of the schema. Reads the catalog. No locks.
SELECT pg_class.relname::text AS name
FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = @schema_name::text
  AND pg_class.relname = ANY (@names::text[])
  AND pg_class.relkind = 'r'
ORDER BY pg_class.relname;

-- name: TableUsers :many
-- Which server processes have locked these tables, the longest first: they keep a
-- migration from them. Reads pg_locks and pg_stat_activity. Locks: none.
SELECT
    coalesce(client.pid, 0)::int AS pid,
    coalesce(client.application_name, '')::text AS application,
    coalesce(client.usename::text, '')::text AS role,
    coalesce(client.state, client.backend_type, '')::text AS state,
    coalesce(
        extract(epoch FROM clock_timestamp() - min(client.xact_start)),
        0
    )::bigint AS open_seconds,
    left(coalesce(client.query, ''), 100)::text AS query
FROM pg_catalog.pg_locks locked
JOIN pg_catalog.pg_class ON pg_class.oid = locked.relation
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
JOIN pg_catalog.pg_stat_activity client ON client.pid = locked.pid
WHERE locked.granted
  AND locked.database = (
      SELECT pg_database.oid
      FROM pg_catalog.pg_database
      WHERE pg_database.datname = current_database()
  )
  AND pg_namespace.nspname = @schema_name::text
  AND pg_class.relname = ANY (@names::text[])
GROUP BY
    client.pid,
    client.application_name,
    client.usename,
    client.state,
    client.backend_type,
    client.query
ORDER BY min(client.xact_start)
LIMIT 3;

-- name: Server :one
-- What a start-up check needs. Comes before anything is pinned: every call in it is exactly
-- one of pg_catalog's. No rows, no locks.
SELECT
    pg_is_in_recovery() AS replica,
    current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('server_version_num')::int AS version,
    current_setting('transaction_isolation') AS isolation,
    (
        extract(epoch FROM current_setting('statement_timeout')::interval) * 1000::numeric
    )::bigint AS statement_timeout,
    now()::timestamptz AS now,
    current_setting('server_encoding') AS encoding,
    current_setting('search_path') AS search_path,
    pg_backend_pid()::bigint AS pid;

-- name: HasMeta :one
-- Whether any migration has been applied. Asked of the catalog as of now: to_regclass may
-- answer from a cache that is older than a lock just waited for. Locks: none.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
    WHERE pg_namespace.nspname = @schema_name::text
      AND pg_class.relname = 'meta'
)::boolean AS found;

-- name: Meta :one
-- Index: meta_pkey, one row. Locks: none.
SELECT version, min_compatible
FROM durable.meta
WHERE only_row;

-- name: SetMeta :exec
-- Index: meta_pkey, one row. Runs under the migration's advisory lock.
-- Idempotent: a repeat writes the same row.
INSERT INTO durable.meta (version, min_compatible)
VALUES (@version, @min_compatible)
ON CONFLICT (only_row) DO UPDATE
SET version = excluded.version,
    min_compatible = excluded.min_compatible,
    migrated_at = now();

-- name: Notify :exec
-- Hints, one notification for each payload; no caller waits for their flush.
-- Idempotent: a repeat sends further hints, which change nothing.
SELECT
    set_config('synchronous_commit', 'off', true),
    pg_notify(@channel::text, hints.payload)
FROM (SELECT unnest(@payloads::text[]) AS payload) hints;

-- name: JoinCrew :exec
-- One advisory lock, shared, of the session that listens: who holds it listens for the
-- same jobs on the same queues. It never waits, since no session takes it alone, and it
-- ends with the connection. A repeat holds it once more, which changes nothing for others.
SELECT pg_advisory_lock_shared(@class::int, @crew::int);

-- name: Watch :one
-- Says that the session that listens looks in these lanes by itself, in this tenth of a
-- second and some more: see NotifyUnwatched. First it ends what it has said of those that
-- have passed. Returns the locks that it holds more, and how long the first of the tenths
-- still lasts, in microseconds. A lock that it does not get costs others a notification.
-- No rows. Locks: advisory ones of the session, for which it does not wait.
-- Idempotent: a repeat holds them once more, and has to end them once more.
WITH ended AS MATERIALIZED (
    SELECT count(pg_advisory_unlock(passed.lock)) AS locks
    FROM (SELECT unnest(@passed::bigint[]) AS lock) passed
), instant AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp())::float8 * 1000000::float8)::bigint AS micros
), wanted AS MATERIALIZED (
    SELECT lanes.lane | ((instant.micros / durable.tenth() + tenths.more) & durable.tenth_bits())
        AS lock
    FROM (SELECT unnest(@lanes::bigint[]) AS lane) lanes
    CROSS JOIN (SELECT generate_series(0, @more::int) AS more) tenths
    CROSS JOIN instant
), held AS MATERIALIZED (
    SELECT wanted.lock
    FROM wanted
    WHERE pg_try_advisory_lock(wanted.lock)
)
SELECT
    ARRAY(SELECT held.lock FROM held)::bigint[] AS locks,
    (durable.tenth() - instant.micros % durable.tenth())::bigint AS rest
FROM instant
CROSS JOIN ended;

-- name: Crew :many
-- Which sessions hold the crew's lock: they listen for the same.
-- Index: none, it reads the server's lock table. Locks: none.
SELECT
    locks.pid::int AS pid,
    (locks.pid = pg_backend_pid())::boolean AS self
FROM pg_catalog.pg_locks AS locks
WHERE locks.locktype = 'advisory'
  AND locks.objsubid = 2
  AND locks.granted
  AND locks.database = (
      SELECT databases.oid
      FROM pg_catalog.pg_database AS databases
      WHERE databases.datname = current_database()
  )
  AND locks.classid = (@class::int)::oid
  AND locks.objid = (@crew::int)::oid;
