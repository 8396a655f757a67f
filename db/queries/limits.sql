-- name: FindLimits :many
-- Index: limits_name_key. Locks: none.
SELECT
    id, name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after, state,
    coalesce(secret, '00000000-0000-0000-0000-000000000000')::uuid AS secret,
    (declared_at IS NOT NULL)::boolean AS declared
FROM durable.limits
WHERE name = ANY (@names::text[]);

-- name: KnownLimitLanes :many
-- Which of these lanes runs of these limits have waited in. Index: limit_lanes_pkey.
-- Locks: none.
SELECT limit_lanes.limit_id, limit_lanes.lane
FROM (
    SELECT
        unnest(@limits::int[]) AS limit_id,
        unnest(@lanes::int[]) AS lane
) wanted
JOIN durable.limit_lanes ON limit_lanes.limit_id = wanted.limit_id
    AND limit_lanes.lane = wanted.lane;

-- name: CreateLimitLanes :exec
-- Index: limit_lanes_pkey. Locks: only what it inserts, in the order given. Committed
-- before a run waits there. Idempotent: a repeat skips conflicts.
INSERT INTO durable.limit_lanes (limit_id, lane)
SELECT unnest(@limits::int[]), unnest(@lanes::int[])
ON CONFLICT DO NOTHING;

-- name: LockLimits :many
-- Index: limits_name_key. Locks: the rows by name, against another declaration or change.
SELECT
    id, name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after, state,
    coalesce(secret, '00000000-0000-0000-0000-000000000000')::uuid AS secret
FROM durable.limits
WHERE name = ANY (@names::text[])
ORDER BY name
FOR UPDATE;

-- name: InsertLimits :exec
-- Index: limits_name_key. Locks: only what it inserts. A name that exists is skipped
-- before the row is formed: ON CONFLICT alone would use up a number for each.
-- Idempotent: a repeat finds the names and inserts nothing.
INSERT INTO durable.limits (
    name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after,
    hash, declared_at, hash_at, brought_at, secret
)
SELECT
    declared.name,
    declared.kind,
    declared.most,
    declared.period,
    declared.burst,
    declared.buckets,
    declared.key_least,
    declared.key_most,
    declared.action,
    declared.retry_after,
    declared.hash,
    now(),
    now(),
    coalesce(
        (
            SELECT workers.started_at
            FROM durable.workers
            WHERE workers.instance = @instance
        ),
        now()
    ),
    declared.secret
FROM (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@kinds::smallint[]) AS kind,
        unnest(@mosts::int[]) AS most,
        unnest(@periods::bigint[]) AS period,
        unnest(@bursts::int[]) AS burst,
        unnest(@bucket_counts::int[]) AS buckets,
        unnest(@key_leasts::int[]) AS key_least,
        unnest(@key_mosts::int[]) AS key_most,
        unnest(@actions::smallint[]) AS action,
        unnest(@retry_afters::bigint[]) AS retry_after,
        unnest(@hashes::text[]) AS hash,
        unnest(@secrets::uuid[]) AS secret
) declared
WHERE NOT EXISTS (
    SELECT
    FROM durable.limits
    WHERE limits.name = declared.name
)
ON CONFLICT (name) DO NOTHING;

-- name: ReplaceLimits :many
-- A hash other than the stored one takes effect when its worker started after the one that
-- brought the stored one, or when no worker has declared the stored one within so many
-- microseconds, as with schedules. A limit keeps its kind and its state; one that was
-- removed is active again. Returns those that changed.
-- Index: limits_name_key. Locks: rows that LockLimits has locked.
-- Idempotent: a repeat finds the stored hash equal and changes nothing.
UPDATE durable.limits
SET most = declared.most,
    period = declared.period,
    burst = declared.burst,
    buckets = declared.buckets,
    key_least = declared.key_least,
    key_most = declared.key_most,
    action = declared.action,
    retry_after = declared.retry_after,
    hash = declared.hash,
    hash_at = now(),
    brought_at = declarer.started_at,
    edited = false,
    state = CASE limits.state
        WHEN durable.limit_removed() THEN durable.limit_active()
        ELSE limits.state
    END
FROM (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@kinds::smallint[]) AS kind,
        unnest(@mosts::int[]) AS most,
        unnest(@periods::bigint[]) AS period,
        unnest(@bursts::int[]) AS burst,
        unnest(@bucket_counts::int[]) AS buckets,
        unnest(@key_leasts::int[]) AS key_least,
        unnest(@key_mosts::int[]) AS key_most,
        unnest(@actions::smallint[]) AS action,
        unnest(@retry_afters::bigint[]) AS retry_after,
        unnest(@hashes::text[]) AS hash
) declared,
(
    SELECT coalesce(
        (
            SELECT workers.started_at
            FROM durable.workers
            WHERE workers.instance = @instance
        ),
        now()
    ) AS started_at
) declarer
WHERE limits.name = declared.name
  AND limits.kind = declared.kind
  AND
-- block: supersedes of limits
      limits.hash <> declared.hash
      AND (
          declarer.started_at >= limits.brought_at
          OR limits.hash_at < now() - (@within::bigint) * interval '1 microsecond'
      )
-- end
RETURNING limits.id;

-- name: TouchLimits :exec
-- Index: limits_name_key. Locks: rows that LockLimits has locked.
UPDATE durable.limits
SET declared_at = now(),
    hash_at = CASE WHEN limits.hash = declared.hash THEN now() ELSE limits.hash_at END
FROM (
    SELECT
        unnest(@names::text[]) AS name,
        unnest(@kinds::smallint[]) AS kind,
        unnest(@hashes::text[]) AS hash
) declared
WHERE limits.name = declared.name
  AND limits.kind = declared.kind;

-- name: OlderWorker :many
-- A worker that may be alive whose program serves a schema before this one: it has been
-- seen within so many microseconds and, if it reports, has reported within fewer of them and
-- not said that it stopped. Index: none; reads workers, a small table. Locks: none.
SELECT name
FROM durable.workers
WHERE coalesce(version, 0) < @version::int
  AND seen_at > now() - (@within::bigint) * interval '1 microsecond'
  AND (
      reported_at IS NULL
      OR present AND reported_at > now() - (@silent::bigint) * interval '1 microsecond'
  )
ORDER BY seen_at DESC
LIMIT 1;

-- name: CreateLimit :execrows
-- An operator's own limit. Index: limits_name_key. Idempotent: a repeat finds the name.
INSERT INTO durable.limits (
    name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after,
    hash, edited, hash_at, brought_at, secret
)
VALUES (
    @name, @kind, @most, @period, @burst, @buckets, @key_least, @key_most, @action,
    @retry_after, '', true, '-infinity', '-infinity', @secret::uuid
)
ON CONFLICT (name) DO NOTHING;

-- name: WriteLimit :exec
-- Index: limits_pkey. Locks: a row that LockLimits has locked.
UPDATE durable.limits
SET most = @most,
    period = @period,
    burst = @burst,
    buckets = @buckets,
    key_least = @key_least,
    key_most = @key_most,
    action = @action,
    retry_after = @retry_after,
    state = @state,
    edited = edited OR @edits::boolean
WHERE id = @id;

-- name: LimitInUse :one
-- How many runs wait for a limit, since when the oldest of them has been due, and how many
-- places are held, each counted up to so many: those in the lines of its gates, of the sets
-- that begin with one of them, and of others that wait in its rounds.
-- Index: waiting_order, rounds_order and permits_pkey, the range of the limit. Locks: none.
SELECT
    waiters.waiting::bigint AS waiting,
    (
        SELECT coalesce(sum(held.k), 0)
        FROM (
            SELECT permits.k
            FROM durable.permits
            WHERE permits.gate >= @first
              AND permits.gate <= @last
              AND (permits.expires_at IS NULL OR permits.expires_at > now())
            LIMIT @most
        ) held
    )::bigint AS held,
    coalesce(waiters.oldest, 'epoch')::timestamptz AS oldest
FROM (
    SELECT count(*) AS waiting, min(first_waiting.due_at) AS oldest
    FROM (
        (
            SELECT waiting.due_at
            FROM durable.waiting
            WHERE waiting.gate >= @first
              AND waiting.gate <= @last
            LIMIT @most
        )
        UNION ALL
        (
            SELECT waiting.due_at
            FROM durable.waiting
            WHERE waiting.gate >= - @last::bigint
              AND waiting.gate <= - @first::bigint
            LIMIT @most
        )
        UNION ALL
        (
            SELECT entered.due_at
            FROM (
                SELECT rounds.line, rounds.lane
                FROM durable.rounds
                WHERE rounds.gate >= @first
                  AND rounds.gate <= @last
                  AND (abs(rounds.line) < @first OR abs(rounds.line) > @last)
                LIMIT @most
            ) entry
            CROSS JOIN LATERAL (
                SELECT waiting.due_at
                FROM durable.waiting
                WHERE waiting.gate = entry.line
                  AND waiting.lane = entry.lane
                LIMIT @most
            ) entered
            LIMIT @most
        )
        LIMIT @most
    ) first_waiting
) waiters;

-- name: NextOfLimit :many
-- The next turn of a gate of the limit that has waiters or a round, looked for among so many
-- gates. Index: waiting_order and rounds_order skipped along the gates, turns_gate. Locks: none.
WITH RECURSIVE gate_of (gate, n) AS (
    SELECT @before::bigint AS gate, 0 AS n
    UNION ALL
    SELECT
        least(
            (
                SELECT waiting.gate
                FROM durable.waiting
                WHERE waiting.gate > gate_of.gate
                  AND waiting.gate <= @last
                ORDER BY waiting.gate
                LIMIT 1
            ),
            (
                SELECT rounds.gate
                FROM durable.rounds
                WHERE rounds.gate > gate_of.gate
                  AND rounds.gate <= @last
                ORDER BY rounds.gate
                LIMIT 1
            )
        ),
        gate_of.n + 1
    FROM gate_of
    WHERE gate_of.gate IS NOT NULL
      AND gate_of.n < @most::int
)
SELECT min(turns.due_at)::timestamptz AS due_at
FROM gate_of
JOIN durable.turns ON turns.gate = gate_of.gate
HAVING min(turns.due_at) IS NOT NULL;

-- name: AnnounceGates :many
-- One turn for each gate of a limit that has waiters or a round, from a gate on, at most so
-- many; on the limit's line. Returns the last gate; null: there were no more. In a transaction
-- after that of the change: a waiter that is committed meanwhile either has its own turn
-- taken by an admission that sees the change, or is seen here.
-- Index: waiting_order and rounds_order, skipped along the gates. Locks: only what it inserts.
-- Idempotent: a repeat adds turns that find nothing to do.
WITH RECURSIVE gate_of (gate, n) AS (
    SELECT @after::bigint AS gate, 0 AS n
    UNION ALL
    SELECT
        least(
            (
                SELECT waiting.gate
                FROM durable.waiting
                WHERE waiting.gate > gate_of.gate
                  AND waiting.gate <= @last
                ORDER BY waiting.gate
                LIMIT 1
            ),
            (
                SELECT rounds.gate
                FROM durable.rounds
                WHERE rounds.gate > gate_of.gate
                  AND rounds.gate <= @last
                ORDER BY rounds.gate
                LIMIT 1
            )
        ),
        gate_of.n + 1
    FROM gate_of
    WHERE gate_of.gate IS NOT NULL
      AND gate_of.n < @most::int
), announced AS (
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(gate_of.gate), clock_timestamp(), gate_of.gate
    FROM gate_of
    WHERE gate_of.gate IS NOT NULL
      AND gate_of.n > 0
    RETURNING gate
)
SELECT announced.gate
FROM announced
ORDER BY announced.gate;

-- name: AnnounceGate :many
-- A turn of a gate on the limit's line, if a run waits for the gate. Returns the line then.
-- The transaction has locked the gate in an earlier statement, so this one sees every waiter
-- whose turn an admission has taken, or that an admission has moved here. The turn of any
-- other waiter is taken after this transaction.
-- Index: waiting_order, from its end: it begins with what has left since it was last
-- vacuumed; rounds_order. Locks: only what it inserts.
INSERT INTO durable.turns (line, due_at, gate)
SELECT durable.line_of_gate(abs(last.gate)), clock_timestamp(), last.gate
FROM (
    (
        SELECT waiting.gate
        FROM durable.waiting
        WHERE waiting.gate = @gate::bigint
        ORDER BY waiting.gate DESC, waiting.lane DESC, waiting.due_at DESC, waiting.run_id DESC
        LIMIT 1
    )
    UNION ALL
    (
        SELECT rounds.gate
        FROM durable.rounds
        WHERE rounds.gate = @gate::bigint
        LIMIT 1
    )
    LIMIT 1
) last
RETURNING line;

-- name: LockGate :exec
-- Locks a gate. One that does not exist is created in the same statement: between two, the
-- sweep may delete it. A row that exists is locked and not written.
-- Index: gates_pkey. Locks: the gate, and waits for an admission that has it or creates it.
-- The transaction creates no other gate, since an admission may wait for one that is new.
-- Idempotent: a repeat finds it.
INSERT INTO durable.gates (gate, key)
VALUES (@gate, @key::text)
ON CONFLICT (gate) DO UPDATE
SET key = excluded.key
WHERE false;

-- name: LockParent :many
-- Locks the gate that all keys of a dynamic window share, before that of a key. If it does
-- not exist, MakeGate creates it in a transaction of its own, and this one begins again.
-- Index: gates_pkey. Locks: the gate, and waits for an admission that has it; the
-- transaction has locked nothing else.
SELECT gate
FROM durable.gates
WHERE gate = @gate
FOR UPDATE;

-- name: MakeGate :exec
-- Creates a gate in a transaction of its own: one that creates a gate and then waits for
-- another may wait for an admission that waits for the first.
-- Index: gates_pkey. Waits for an admission that creates the same gate. Idempotent: a repeat
-- finds it.
INSERT INTO durable.gates (gate, key)
VALUES (@gate, @key::text)
ON CONFLICT DO NOTHING;

-- name: PenalizeGate :execrows
-- Index: gates_pkey. Locks: a gate that LockGate has locked.
-- Idempotent: the later end counts.
UPDATE durable.gates
SET not_before = greatest(
    not_before,
    clock_timestamp() + (@lasts::bigint) * interval '1 microsecond'
)
WHERE gate = @gate;

-- name: EndPenalty :execrows
-- Index: gates_pkey. Locks: the gate, and waits for an admission that has it; the
-- transaction has locked nothing else. Idempotent: a repeat finds no penalty.
UPDATE durable.gates
SET not_before = NULL
WHERE gate = @gate
  AND not_before > clock_timestamp();

-- name: EndPermit :execrows
-- Index: permits_pkey. Locks: the permit, of a gate that LockGate has locked. Idempotent: a
-- repeat finds none.
DELETE FROM durable.permits
WHERE gate = @gate
  AND owner = @owner;

-- name: ExtendPermit :execrows
-- Index: permits_pkey. Locks: the permit, of a gate that is locked. An owner whose permit has
-- expired has none.
UPDATE durable.permits
SET expires_at = clock_timestamp() + (@lasts::bigint) * interval '1 microsecond'
WHERE gate = @gate
  AND owner = @owner
  AND until = durable.until_expires()
  AND expires_at > clock_timestamp();

-- name: GateState :many
-- Index: gates_pkey. Locks: none.
SELECT not_before
FROM durable.gates
WHERE gate = @gate;

-- name: GatePermits :many
-- The permits of a gate; of a claim's the worker that executes its runs.
-- Index: permits_pkey, leases_pkey, runs_pkey. Locks: none.
SELECT
    permits.owner,
    permits.k,
    permits.until,
    permits.expires_at,
    permits.runs[1:100]::uuid[] AS runs,
    coalesce(
        (
            SELECT workers.name
            FROM durable.leases
            JOIN durable.workers ON workers.id = leases.worker
            WHERE leases.claim_id = permits.owner
        ),
        (
            SELECT workers.name
            FROM durable.runs
            JOIN durable.workers ON workers.id = runs.worker
            WHERE runs.id = permits.owner
              AND runs.state = durable.running()
        ),
        ''
    )::text AS worker
FROM durable.permits
WHERE permits.gate = @gate
  AND (permits.expires_at IS NULL OR permits.expires_at > now())
  AND permits.k > 0
ORDER BY permits.at, permits.owner
LIMIT @most;

-- name: GateUse :one
-- What a gate has in use, and how many runs wait for it, counted up to so many: in its lines,
-- in its round, and in lines that count for its key, wherever they wait.
-- Index: permits_pkey, waiting_order, rounds_order and rounds_home. Locks: none.
SELECT
    (
        SELECT coalesce(sum(permits.k), 0)
        FROM durable.permits
        WHERE permits.gate = @gate
          AND (permits.expires_at IS NULL OR permits.expires_at > now())
    )::bigint AS used,
    (
        SELECT count(*)
        FROM (
            (
                SELECT
                FROM durable.waiting
                WHERE waiting.gate = @gate
                LIMIT @most
            )
            UNION ALL
            (
                SELECT
                FROM (
-- block: lines-of-gate
                    SELECT rounds.line, rounds.lane, rounds.since, rounds.home
                    FROM durable.rounds
                    WHERE rounds.line <> @gate
                      AND (rounds.gate = @gate OR rounds.home = @gate)
-- end
                    LIMIT @most
                ) entry
                CROSS JOIN LATERAL (
                    SELECT
                    FROM durable.waiting
                    WHERE waiting.gate = entry.line
                      AND waiting.lane = entry.lane
                    LIMIT @most
                ) entered
                LIMIT @most
            )
            LIMIT @most
        ) waiters
    )::bigint AS waiting,
    (
        SELECT min(turns.due_at)
        FROM durable.turns
        WHERE turns.gate = @gate
    )::timestamptz AS next_at;

-- name: GateWaiters :many
-- The first runs that wait for a gate, in the order of their admission there: by priority,
-- then one of each home before a second of any, the home first that has waited longest.
-- Index: limit_lanes_pkey and waiting_order for each line; rounds_order and rounds_home.
-- Locks: none.
WITH line AS (
    SELECT asked.gate AS line, limit_lanes.lane, asked.gate AS home, own.since
    FROM (SELECT @gate::bigint AS gate) asked
    CROSS JOIN durable.limit_lanes
    LEFT JOIN durable.rounds own ON own.line = asked.gate
        AND own.lane = limit_lanes.lane
        AND own.gate = asked.gate
    WHERE limit_lanes.limit_id = @limit_id
    UNION ALL
    SELECT entry.line, entry.lane, entry.home, entry.since
    FROM (
-- block: lines-of-gate
                    SELECT rounds.line, rounds.lane, rounds.since, rounds.home
                    FROM durable.rounds
                    WHERE rounds.line <> @gate
                      AND (rounds.gate = @gate OR rounds.home = @gate)
-- end
        ORDER BY rounds.since
        LIMIT @most
    ) entry
), waiter AS (
    SELECT
        first.run_id,
        lanes.job,
        lanes.queue,
        lanes.priority,
        first.due_at,
        min(coalesce(line.since, first.due_at)) OVER (PARTITION BY line.home) AS since,
        row_number() OVER (
            PARTITION BY line.home, lanes.priority
            ORDER BY first.due_at, first.run_id
        ) AS rank
    FROM line
    JOIN durable.lanes ON lanes.id = abs(line.lane)
    CROSS JOIN LATERAL (
        SELECT waiting.run_id, waiting.due_at
        FROM durable.waiting
        WHERE waiting.gate = line.line
          AND waiting.lane = line.lane
        ORDER BY waiting.due_at, waiting.run_id
        LIMIT @most
    ) first
)
SELECT waiter.run_id, waiter.job, waiter.queue, waiter.priority, waiter.due_at
FROM waiter
ORDER BY waiter.priority DESC, waiter.rank, waiter.since, waiter.due_at, waiter.run_id
LIMIT @most;

-- name: ListLimits :many
-- Index: reads limits, a small table. Locks: none.
SELECT
    id, name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after, state,
    coalesce(secret, '00000000-0000-0000-0000-000000000000')::uuid AS secret,
    edited, declared_at
FROM durable.limits
WHERE state <> durable.limit_removed()
  AND (cardinality(@names::text[]) = 0 OR name = ANY (@names::text[]))
ORDER BY name;
