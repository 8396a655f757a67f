-- What the verb doctor asks. Everything is read once, by a person's order.

-- name: ExamineServer :one
-- Settings and numbers of the server. No locks.
SELECT pg_is_in_recovery() AS replica, current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('server_version_num')::int AS version, current_setting('transaction_isolation')::text AS isolation,
       current_setting('synchronous_commit')::text AS synchronous_commit, current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes, current_setting('autovacuum') = 'on' AS autovacuum,
       current_setting('track_counts') = 'on' AS track_counts,
       (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint AS statement_timeout,
       current_setting('max_connections')::int AS max_connections, current_setting('superuser_reserved_connections')::int AS reserved,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.backend_type = 'client backend')::int AS connections,
       clock_timestamp()::timestamptz AS now;

-- name: ExamineRole :one
-- The role, and what ends the transaction of a client that is gone or frozen:
-- keepalives are 0 on a Unix socket, whose end is noticed. No locks.
SELECT r.rolname::text AS name, coalesce(r.rolsuper, false)::boolean AS superuser,
       (SELECT current_setting('tcp_keepalives_idle')::bigint + current_setting('tcp_keepalives_interval')::bigint * current_setting('tcp_keepalives_count')::bigint)::bigint
           AS keepalive_seconds,
       (SELECT s.setting::bigint FROM pg_catalog.pg_settings s WHERE s.name = 'idle_in_transaction_session_timeout')::bigint AS idle_milliseconds
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user;

-- name: ExamineProcess :one
-- Whose answer this is. No locks.
SELECT pg_backend_pid()::bigint AS pid;

-- name: ExamineSnapshots :one
-- How long the oldest transaction has been open, how many rows' worth of
-- transactions it and what else may hold keep from being cleaned up. No locks.
SELECT coalesce((SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint FROM pg_catalog.pg_stat_activity a
                 WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)), 0)::bigint AS open_seconds,
       coalesce((SELECT max(age(a.backend_xmin)) FROM pg_catalog.pg_stat_activity a), 0)::bigint AS held_by_transaction,
       coalesce((SELECT max(greatest(age(s.xmin), age(s.catalog_xmin))) FROM pg_catalog.pg_replication_slots s), 0)::bigint AS held_by_slot,
       coalesce((SELECT max(age(p.transaction)) FROM pg_catalog.pg_prepared_xacts p), 0)::bigint AS held_by_prepared;

-- name: ExamineTables :many
-- Living and dead rows of the hot tables, as the statistics have them. No locks.
SELECT t.relname::text AS name, coalesce(t.n_live_tup, 0)::bigint AS live, coalesce(t.n_dead_tup, 0)::bigint AS dead,
       (coalesce(c.reloptions, '{}') @> ARRAY['autovacuum_enabled=false'] OR coalesce(c.reloptions, '{}') @> ARRAY['autovacuum_enabled=off'])::boolean AS unvacuumed
FROM pg_catalog.pg_stat_user_tables t JOIN pg_catalog.pg_class c ON c.oid = t.relid
WHERE t.schemaname = @schema_name::text AND t.relname IN ('ready', 'leases', 'runs') ORDER BY t.relname;

-- name: ExamineIdentities :many
-- Tables of the schema whose rows a publication could not tell apart: deletes
-- and updates are refused as soon as one publishes them. Reads the catalog. No
-- locks.
SELECT c.relname::text AS name,
       EXISTS (SELECT FROM pg_catalog.pg_publication_tables p
               WHERE p.schemaname = n.nspname AND p.tablename = c.relname)::boolean AS published
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = @schema_name::text AND c.relkind = 'r' AND c.relreplident <> 'f'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i
                  WHERE i.indrelid = c.oid AND i.indisvalid
                    AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident))
ORDER BY c.relname;

-- name: ExamineLeases :one
-- leases_expiry; beats and leases_beat. Leases that nobody has taken back within so many microseconds
-- of their end, up to a thousand. No locks.
SELECT count(*)::bigint AS expired FROM (
    SELECT l.claim_id FROM durable.leases l WHERE l.expires_at < now() - (@within::bigint) * interval '1 microsecond'
    UNION ALL
    SELECT l.claim_id FROM durable.beats b JOIN durable.leases l ON l.beat = b.id WHERE b.expires_at < now() - (@within::bigint) * interval '1 microsecond'
    LIMIT 1000) e;

-- name: ExamineQueues :many
-- Reads the whole table, a small one. No locks.
SELECT q.name FROM durable.queues q WHERE q.paused ORDER BY q.name;

-- name: ExamineUndeclared :many
-- Jobs of which runs wait although no worker has declared them within so many
-- microseconds. Reads lanes and jobs, small ones, and one row of ready_order
-- for each line. No locks.
SELECT DISTINCT l.job, l.queue, coalesce(j.declared_at, 'epoch')::timestamptz AS declared_at
FROM durable.lanes l LEFT JOIN durable.jobs j ON j.name = l.job
WHERE (j.name IS NULL OR j.declared_at < now() - (@within::bigint) * interval '1 microsecond')
  AND (EXISTS (SELECT FROM durable.ready r WHERE r.lane = l.id) OR EXISTS (SELECT FROM durable.ready r WHERE r.lane = -l.id))
ORDER BY l.job, l.queue LIMIT 100;

-- name: ExamineWorkers :one
-- Reads the whole table; processes that were heard of within so many
-- microseconds. No locks.
SELECT count(*)::bigint AS seen FROM durable.workers w WHERE w.seen_at > now() - (@within::bigint) * interval '1 microsecond';
