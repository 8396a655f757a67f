-- What the verb doctor asks. Every statement runs once, when an operator orders it.

-- name: ExamineServer :one
-- Settings and numbers of the server. Locks: none.
SELECT
    pg_is_in_recovery() AS replica,
    current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('server_version_num')::int AS version,
    current_setting('default_transaction_isolation')::text AS isolation,
    current_setting('synchronous_commit')::text AS synchronous_commit,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('autovacuum') = 'on' AS autovacuum,
    current_setting('track_counts') = 'on' AS track_counts,
    (
        extract(epoch FROM current_setting('statement_timeout')::interval) * 1000
    )::bigint AS statement_timeout,
    current_setting('max_connections')::int AS max_connections,
    current_setting('superuser_reserved_connections')::int AS reserved,
    (
        SELECT count(*)
        FROM pg_catalog.pg_stat_activity
        WHERE pg_stat_activity.backend_type = 'client backend'
    )::int AS connections,
    clock_timestamp()::timestamptz AS now;

-- name: ExamineRole :one
-- The role, and what ends the transaction of a client that is gone or frozen: keepalives
-- are 0 on a Unix socket, whose end is noticed. Locks: none.
SELECT
    pg_roles.rolname::text AS name,
    coalesce(pg_roles.rolsuper, false)::boolean AS superuser,
    (
        SELECT
            current_setting('tcp_keepalives_idle')::bigint
            + current_setting('tcp_keepalives_interval')::bigint
                * current_setting('tcp_keepalives_count')::bigint
    )::bigint AS keepalive_seconds,
    (
        SELECT pg_settings.setting::bigint
        FROM pg_catalog.pg_settings
        WHERE pg_settings.name = 'idle_in_transaction_session_timeout'
    )::bigint AS idle_milliseconds
FROM pg_catalog.pg_roles
WHERE pg_roles.rolname = current_user;

-- name: MayCallFunctions :one
-- Whether the role may execute all functions of the schema. Index: the catalog's. Locks:
-- none.
SELECT coalesce(bool_and(has_function_privilege(pg_proc.oid, 'EXECUTE')), true)::boolean AS may
FROM pg_catalog.pg_proc
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_proc.pronamespace
WHERE pg_namespace.nspname = @schema_name::text;

-- name: MissingPrivileges :many
-- Which of these privileges the role lacks; a column of '' means the whole table, a
-- table of '*' for every table but meta and audit. Index: the catalog's. Locks: none.
SELECT
    needed.may::text AS may,
    pg_class.relname::text AS table_name
FROM (
    SELECT
        pg_catalog.unnest(@privileges::text[]) AS may,
        pg_catalog.unnest(@tables::text[]) AS table_name,
        pg_catalog.unnest(@columns::text[]) AS column_name
) needed
JOIN pg_catalog.pg_class
    ON pg_class.relkind = 'r'
    AND (
        needed.table_name = pg_class.relname
        OR needed.table_name = '*' AND pg_class.relname NOT IN ('meta', 'audit')
    )
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = @schema_name::text
  AND NOT CASE
      WHEN needed.column_name = '' THEN has_table_privilege(pg_class.oid, needed.may)
      ELSE has_column_privilege(pg_class.oid, needed.column_name, needed.may)
  END
ORDER BY pg_class.relname, needed.may;

-- name: ExamineProcess :one
-- Which server process answers. Locks: none.
SELECT pg_backend_pid()::bigint AS pid;

-- name: ExamineSnapshots :one
-- How long the oldest transaction has been open, and how many rows' worth of transactions
-- it, and what else may hold a snapshot, keep from being cleaned up. Locks: none.
SELECT
    coalesce(
        (
            SELECT max(extract(epoch FROM clock_timestamp() - pg_stat_activity.xact_start))::bigint
            FROM pg_catalog.pg_stat_activity
            WHERE pg_stat_activity.backend_type = 'client backend'
              AND pg_stat_activity.pid <> pg_backend_pid()
              AND (
                  pg_stat_activity.backend_xmin IS NOT NULL
                  OR pg_stat_activity.backend_xid IS NOT NULL
              )
        ),
        0
    )::bigint AS open_seconds,
    coalesce(
        (
            SELECT max(age(pg_stat_activity.backend_xmin))
            FROM pg_catalog.pg_stat_activity
        ),
        0
    )::bigint AS held_by_transaction,
    coalesce(
        (
            SELECT max(greatest(age(slots.xmin), age(slots.catalog_xmin)))
            FROM pg_catalog.pg_replication_slots slots
        ),
        0
    )::bigint AS held_by_slot,
    coalesce(
        (
            SELECT max(age(prepared.transaction))
            FROM pg_catalog.pg_prepared_xacts prepared
        ),
        0
    )::bigint AS held_by_prepared;

-- name: ExamineTables :many
-- Living and dead rows of the hot tables, as the statistics have them. Locks: none.
SELECT
    counted.relname::text AS name,
    coalesce(counted.n_live_tup, 0)::bigint AS live,
    coalesce(counted.n_dead_tup, 0)::bigint AS dead,
    (
        coalesce(pg_class.reloptions, '{}') @> ARRAY['autovacuum_enabled=false']
        OR coalesce(pg_class.reloptions, '{}') @> ARRAY['autovacuum_enabled=off']
    )::boolean AS unvacuumed
FROM pg_catalog.pg_stat_user_tables counted
JOIN pg_catalog.pg_class ON pg_class.oid = counted.relid
WHERE counted.schemaname = @schema_name::text
  AND counted.relname IN ('ready', 'leases', 'runs', 'waiting', 'turns', 'permits')
ORDER BY counted.relname;

-- name: ExamineIdentities :many
-- Tables of the schema whose rows a publication could not tell apart: deletes and updates
-- are refused as soon as one publishes them. Reads the catalog. Locks: none.
SELECT
    pg_class.relname::text AS name,
    EXISTS (
        SELECT
        FROM pg_catalog.pg_publication_tables published_tables
        WHERE published_tables.schemaname = pg_namespace.nspname
          AND published_tables.tablename = pg_class.relname
    )::boolean AS published
FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = @schema_name::text
  AND pg_class.relkind = 'r'
  AND pg_class.relreplident <> 'f'
  AND NOT EXISTS (
      SELECT
      FROM pg_catalog.pg_index
      WHERE pg_index.indrelid = pg_class.oid
        AND pg_index.indisvalid
        AND (
            pg_class.relreplident = 'd' AND pg_index.indisprimary
            OR pg_class.relreplident = 'i' AND pg_index.indisreplident
        )
  )
ORDER BY pg_class.relname;

-- name: InvalidIndexes :many
-- Indexes of the schema that serve no query, because a CREATE INDEX CONCURRENTLY
-- has failed or is still running. Reads the catalog. Locks: none.
SELECT pg_class.relname::text AS name
FROM pg_catalog.pg_index
JOIN pg_catalog.pg_class ON pg_class.oid = pg_index.indexrelid
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = @schema_name::text
  AND NOT pg_index.indisvalid
ORDER BY pg_class.relname;

-- name: ExamineLeases :one
-- Leases that have not been reclaimed within so many microseconds of their end, up to a
-- thousand. Index: leases_expiry; beats and leases_beat. Locks: none.
SELECT count(*)::bigint AS expired
FROM (
    SELECT leases.claim_id
    FROM durable.leases
    WHERE leases.expires_at < now() - (@within::bigint) * interval '1 microsecond'
    UNION ALL
    SELECT leases.claim_id
    FROM durable.beats
    JOIN durable.leases ON leases.beat = beats.id
    WHERE beats.expires_at < now() - (@within::bigint) * interval '1 microsecond'
    LIMIT 1000
) expired_leases;

-- name: ExamineQueues :many
-- Index: none; reads the whole table, a small one. Locks: none.
SELECT queues.name
FROM durable.queues
WHERE queues.stopped
   OR queues.paused AND queues.cap IS NULL
ORDER BY queues.name;
