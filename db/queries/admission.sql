-- The claim of limited runs. One transaction: TakeTurns locks gates; the statements after it
-- read, in snapshots younger than those locks, what the gates admit; admit.Decide decides;
-- the rest writes. Turns and waiters are due by the same now(), that of the transaction.
-- The reading statements go with TakeTurns in one round trip: it leaves the gates in
-- admission.gates, a setting of the transaction, for those that are given none.

-- name: TakeTurns :one
-- Takes turns from lines, in the order wanted, and locks their gates; returns the gates
-- that are the admission's, by the age of their turns, which it returns too, and leaves
-- them in admission.gates.
-- A gate that does not exist is created.
-- The turns of a gate that another admission has go back, a moment later: that admission
-- may have counted before what they announce was committed. One turn answers for all that
-- are due of its line and gate, and for those of the gate's limit, as the admission leaves
-- one for each lane for whose runs there is room; so some of the others go with it: each
-- enqueue leaves one, and each release.
-- Index: turns_order for each line, gates_pkey, turns_gate (unindexed keeps the planner
-- from turns_order, where it would read all turns of the line for each gate). Locks: the turns
-- and the gates, with SKIP LOCKED. An insert waits, in the order of the gates, for an
-- admission that makes the same gate, which waits for nothing.
-- Idempotent: a rollback leaves the turns where they were.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.turns
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM (SELECT unnest(@lines::int[]) AS line, unnest(@takes::int[]) AS take) asked,
        LATERAL (
            SELECT first.ctid
            FROM durable.turns first
            WHERE first.line = asked.line
              AND first.due_at <= now()
            ORDER BY first.due_at, first.gate
            LIMIT asked.take
            FOR UPDATE SKIP LOCKED
        ) due
        LIMIT @most
    ))
    RETURNING line, due_at, gate
), locked AS MATERIALIZED (
    SELECT gates.gate
    FROM durable.gates
    WHERE gates.gate = ANY (ARRAY(SELECT DISTINCT taken.gate FROM taken))
    FOR UPDATE SKIP LOCKED
), made AS (
    INSERT INTO durable.gates (gate)
    SELECT DISTINCT taken.gate
    FROM taken
    WHERE NOT EXISTS (SELECT FROM durable.gates WHERE gates.gate = taken.gate)
    ORDER BY taken.gate
    ON CONFLICT DO NOTHING
    RETURNING gate
), ours AS MATERIALIZED (
    SELECT locked.gate FROM locked
    UNION ALL
    SELECT made.gate FROM made
), put_back AS (
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT
        taken.line,
        now() + (@again::bigint) * interval '1 microsecond',
        taken.gate
    FROM taken
    WHERE taken.gate NOT IN (SELECT ours.gate FROM ours)
), spare AS (
    DELETE FROM durable.turns
    WHERE ctid = ANY (ARRAY(
        SELECT other.ctid
        FROM (
            SELECT DISTINCT taken.line, taken.gate
            FROM taken
            WHERE taken.gate IN (SELECT ours.gate FROM ours)
        ) answered,
        LATERAL (
            SELECT turns.ctid
            FROM durable.turns
            WHERE turns.gate = answered.gate
              AND durable.unindexed(turns.line) IN (
                  answered.line,
                  durable.line_of_gate(answered.gate)
              )
              AND turns.due_at <= now()
            LIMIT @spare
            FOR UPDATE SKIP LOCKED
        ) other
    ))
)
SELECT pg_catalog.set_config(
    'admission.gates',
    coalesce(array_agg(answered.gate ORDER BY answered.due_at, answered.gate), '{}')::text,
    true
)::bigint[] AS gates,
    coalesce(array_agg(answered.due_at ORDER BY answered.due_at, answered.gate), '{}')
        ::timestamptz[] AS dues
FROM (
    SELECT taken.gate, min(taken.due_at) AS due_at
    FROM taken
    WHERE taken.gate IN (SELECT ours.gate FROM ours)
    GROUP BY taken.gate
) answered;

-- name: TurnsLeft :one
-- Whether turns are on lines that are due, or will be soon: those that other admissions
-- have taken or left meanwhile, and those that this one has put back.
-- Index: turns_order. Locks: none.
SELECT EXISTS (
    SELECT
    FROM (SELECT unnest(@lines::int[]) AS line) asked,
    LATERAL (
        SELECT
        FROM durable.turns
        WHERE turns.line = asked.line
          AND turns.due_at <= now() + (@ahead::bigint) * interval '1 microsecond'
        LIMIT 1
    ) due
)::boolean AS "left";

-- name: LockGates :many
-- Locks more gates, the others of runs that the admission examines, and makes those that
-- do not exist. One that is not returned is another admission's.
-- Index: gates_pkey. Locks: as TakeTurns.
WITH asked AS MATERIALIZED (
    SELECT unnest(@gates::bigint[]) AS gate
), locked AS MATERIALIZED (
    SELECT gates.gate
    FROM durable.gates
    WHERE gates.gate = ANY (@gates::bigint[])
    FOR UPDATE SKIP LOCKED
), made AS (
    INSERT INTO durable.gates (gate)
    SELECT asked.gate
    FROM asked
    WHERE NOT EXISTS (
        SELECT
        FROM durable.gates
        WHERE gates.gate = asked.gate
    )
    ORDER BY asked.gate
    ON CONFLICT DO NOTHING
    RETURNING gate
)
SELECT locked.gate FROM locked
UNION ALL
SELECT made.gate FROM made;

-- name: MakeGates :exec
-- Makes gates in a transaction of their own: two admissions that make the same two, each one
-- of them first, wait for each other.
-- Index: gates_pkey. Locks: only what it inserts, in order. Idempotent: a repeat finds them.
INSERT INTO durable.gates (gate)
SELECT asked.gate
FROM (SELECT unnest(@gates::bigint[]) AS gate) asked
ORDER BY asked.gate
ON CONFLICT DO NOTHING;

-- name: ReadLimits :many
-- The limits of gates. Index: limits_pkey. Locks: none.
WITH asked AS (
-- block: gates-read
    SELECT unnest(
        coalesce(
            sqlc.narg('gates')::bigint[],
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        )
    ) AS gate
-- end
)
SELECT
    id, name, kind, most, period, burst, buckets, key_least, key_most, action, retry_after, state,
    coalesce(secret, '00000000-0000-0000-0000-000000000000')::uuid AS secret
FROM durable.limits
WHERE id = ANY (ARRAY(SELECT durable.limit_of(abs(asked.gate)) FROM asked));

-- name: ReadGates :many
-- What gates have in use, and the state of their rates. Limits is what a waiter says, of a
-- gate whose key is not known yet.
-- Index: permits_pkey, gates_pkey; waiting_order and runs_pkey for a key that is not known.
-- Locks: none; the gates are locked.
WITH asked AS (
-- block: gates-read
    SELECT unnest(
        coalesce(
            sqlc.narg('gates')::bigint[],
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        )
    ) AS gate
-- end
)
SELECT
    asked.gate::bigint AS gate,
    counted.used::bigint AS used,
    counted.frees_at::timestamptz AS frees_at,
    counted.lapsed::boolean AS lapsed,
    (gates.key IS NOT NULL)::boolean AS known,
    coalesce(gates.tat, 0)::bigint AS tat,
    gates.bucket_at,
    gates.bucket_n,
    gates.not_before,
    coalesce(gates.since, 0)::bigint AS since,
    coalesce(gates.last_at, 0)::bigint AS last_at,
    CASE
        WHEN gates.key IS NULL THEN (
            SELECT runs.limits
            FROM durable.waiting
            JOIN durable.runs ON runs.id = waiting.run_id
            WHERE waiting.gate = asked.gate
            LIMIT 1
        )
    END::text[] AS limits,
    clock_timestamp()::timestamptz AS now
FROM asked
JOIN durable.gates ON gates.gate = asked.gate
CROSS JOIN LATERAL (
    SELECT
        coalesce(
            sum(permits.k) FILTER (
                WHERE permits.expires_at IS NULL
                   OR permits.expires_at > now()
            ),
            0
        ) AS used,
        min(permits.expires_at) FILTER (WHERE permits.expires_at > now()) AS frees_at,
        coalesce(bool_or(permits.expires_at <= now()), false) AS lapsed
    FROM durable.permits
    WHERE permits.gate = asked.gate
) counted;

-- name: ReadLines :many
-- The first waiters of each line of the gates: of the admission's own lanes so many, or as
-- many as it may take (admit.Quantum), and one more to see whether another follows; of other
-- lanes as many as may stand before those. In a limit that acts on waiters beyond its
-- places, as many as there is room for. A line that has a mark is read from it on: what
-- comes before it in the index are mostly entries of waiters that have left.
-- A line that waits in the round of another gate is left out.
-- Index: limit_lanes_pkey, rounds_pkey, then one scan of waiting_order for each line; runs_pkey
-- for those that say more than their gate. Locks: none.
WITH asked AS (
-- block: gates-read
    SELECT unnest(
        coalesce(
            sqlc.narg('gates')::bigint[],
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        )
    ) AS gate
-- end
)
SELECT
    line.gate::bigint AS gate,
    line.lane::int AS lane,
    first.due_at,
    first.run_id,
    said.limits::text[] AS limits
FROM (
    SELECT
        asked.gate,
        limit_lanes.lane,
        limit_lanes.lane = ANY (@lanes::int[]) AS ours,
        limits.action,
        limits.kind,
        limits.most,
        coalesce(marks.due_at, '-infinity') AS low
    FROM asked
    JOIN durable.limit_lanes ON limit_lanes.limit_id = durable.limit_of(abs(asked.gate))
    JOIN durable.limits ON limits.id = limit_lanes.limit_id
    LEFT JOIN (
        SELECT
            unnest(@mark_gates::bigint[]) AS gate,
            unnest(@mark_lanes::int[]) AS lane,
            unnest(@mark_dues::timestamptz[]) AS due_at
    ) marks ON marks.gate = asked.gate
        AND marks.lane = limit_lanes.lane
    WHERE NOT EXISTS (
        SELECT
        FROM durable.rounds
        WHERE rounds.line = asked.gate
          AND rounds.lane = limit_lanes.lane
          AND rounds.gate <> asked.gate
    )
    UNION ALL
    SELECT
        durable.all_permits(), own.lane, true, durable.full_default(), durable.limit_semaphore(), 0,
        '-infinity'
    FROM (SELECT unnest(@lanes::int[]) AS lane) own
    WHERE durable.all_permits() IN (SELECT asked.gate FROM asked)
) line
CROSS JOIN LATERAL (
    SELECT waiting.due_at, waiting.run_id, waiting.more
    FROM durable.waiting
    WHERE waiting.gate = line.gate
      AND waiting.lane = line.lane
      AND waiting.due_at >= line.low
      AND waiting.due_at <= now()
    ORDER BY waiting.due_at, waiting.run_id
    LIMIT CASE
        WHEN line.ours AND line.action > durable.full_wait() THEN (@room::int) + 1
        WHEN line.ours THEN coalesce(
            sqlc.narg('depth')::int,
            (SELECT durable.part_of(@room::int, count(*)) + 1 FROM asked)
        )
        WHEN line.kind = durable.limit_semaphore() THEN least(
            @room::int,
            greatest(
                line.most - durable.used(line.gate),
                1
            )
        )
        ELSE @room::int
    END
) first
LEFT JOIN LATERAL (
    SELECT runs.limits
    FROM durable.runs
    WHERE first.more
      AND runs.id = first.run_id
    OFFSET 0
) said ON true;

-- name: ReadLanes :many
-- The lanes in which runs of the limits have waited, with the gates of the caps of their
-- queues. Index: limit_lanes_pkey, lanes_pkey, queues_pkey. Locks: none.
WITH asked AS (
-- block: gates-read
    SELECT unnest(
        coalesce(
            sqlc.narg('gates')::bigint[],
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        )
    ) AS gate
-- end
)
SELECT DISTINCT
    limit_lanes.lane,
    lanes.priority,
    (lanes.paused AND (queues.cap IS NULL OR queues.stopped))::boolean AS paused,
    coalesce(queues.cap, 0)::bigint AS cap,
    lanes.queue
FROM durable.limit_lanes
JOIN durable.lanes ON lanes.id = abs(limit_lanes.lane)
LEFT JOIN durable.queues ON queues.name = lanes.queue
WHERE limit_lanes.limit_id = ANY (ARRAY(SELECT durable.limit_of(abs(asked.gate)) FROM asked))
   OR limit_lanes.lane = ANY (@lanes::int[])
  AND durable.all_permits() IN (SELECT asked.gate FROM asked);

-- name: ReadKept :many
-- Places that are kept, and what waits in rounds: of the gates the first entries of each lane,
-- as many as wanted or as may be admitted and a few more; and where the lines of the gates
-- wait themselves. Of a place that is kept the line is null, and since is when it expires.
-- Index: kept_pkey, almost empty; rounds_order for each lane of a gate that has a round, after
-- limit_lanes_pkey; rounds_pkey. Locks: none: who writes an entry has its gate or its line.
WITH asked AS (
-- block: gates-read
    SELECT unnest(
        coalesce(
            sqlc.narg('gates')::bigint[],
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        )
    ) AS gate
-- end
), round AS MATERIALIZED (
    SELECT asked.gate
    FROM asked
    WHERE EXISTS (SELECT FROM durable.rounds WHERE rounds.gate = asked.gate)
)
SELECT
    kept.gate::bigint AS gate,
    kept.lane::int AS lane,
    kept.expires_at::timestamptz AS since,
    NULL::bigint AS line,
    0::bigint AS home,
    NULL::bigint[] AS gates
FROM durable.kept
WHERE gate = ANY (ARRAY(SELECT asked.gate FROM asked))
UNION ALL
SELECT first.gate, first.lane, first.since, first.line, first.home, first.gates
FROM round
JOIN durable.limit_lanes ON limit_lanes.limit_id = durable.limit_of(round.gate)
CROSS JOIN LATERAL (
    SELECT rounds.gate, rounds.lane, rounds.since, rounds.line, rounds.home, rounds.gates
    FROM durable.rounds
    WHERE rounds.gate = round.gate
      AND rounds.lane = limit_lanes.lane
    ORDER BY rounds.since, rounds.line
    LIMIT coalesce(
        sqlc.narg('entries')::int,
        (
            SELECT durable.part_of(@room::int, count(*)) + 4
            FROM asked
        )
    )
) first
UNION ALL
SELECT own.gate, own.lane, own.since, own.line, own.home, own.gates
FROM durable.rounds own
WHERE own.line = ANY (ARRAY(SELECT asked.gate FROM asked));

-- name: ReadEntries :many
-- The first waiters of lines that wait in rounds, as ReadLines has them: of a line that has a
-- mark from it on.
-- Index: waiting_order for each line, runs_pkey. Locks: none; the lines are locked.
SELECT
    entry.line::bigint AS gate,
    entry.lane::int AS lane,
    first.due_at,
    first.run_id,
    said.limits::text[] AS limits
FROM (
    SELECT
        unnest(@lines::bigint[]) AS line,
        unnest(@lanes::int[]) AS lane,
        unnest(@depths::int[]) AS depth,
        unnest(@lows::timestamptz[]) AS low
) entry
CROSS JOIN LATERAL (
    SELECT waiting.due_at, waiting.run_id, waiting.more
    FROM durable.waiting
    WHERE waiting.gate = entry.line
      AND waiting.lane = entry.lane
      AND waiting.due_at >= entry.low
      AND waiting.due_at <= now()
    ORDER BY waiting.due_at, waiting.run_id
    LIMIT entry.depth
) first
LEFT JOIN LATERAL (
    SELECT runs.limits
    FROM durable.runs
    WHERE first.more
      AND runs.id = first.run_id
    OFFSET 0
) said ON true;

-- name: KeysInRound :many
-- The keys of a dynamic window that wait in the round of the gate that all share, the one
-- that has waited longest first, looked for among so many entries.
-- Index: limit_lanes_pkey, rounds_order for each lane, lanes_pkey. Locks: none; the gate is locked.
SELECT held.key::bigint AS key
FROM durable.limit_lanes
JOIN durable.lanes ON lanes.id = abs(limit_lanes.lane)
    AND NOT lanes.paused
CROSS JOIN LATERAL (
    SELECT rounds.since, rounds.gates
    FROM durable.rounds
    WHERE rounds.gate = @gate
      AND rounds.lane = limit_lanes.lane
    ORDER BY rounds.since, rounds.line
    LIMIT @most
) first
CROSS JOIN LATERAL unnest(first.gates) AS held (key)
WHERE limit_lanes.limit_id = durable.limit_of(@gate::bigint)
  AND durable.limit_of(held.key) = durable.limit_of(@gate::bigint)
  AND held.key <> @gate
GROUP BY held.key
ORDER BY min(first.since), held.key
LIMIT @most;

-- name: LeaveRounds :exec
-- Lines that wait in no round any more. Index: rounds_pkey. Locks: entries of lines and
-- gates that are locked. Idempotent: a repeat finds none.
DELETE FROM durable.rounds
USING (
    SELECT
        unnest(@lines::bigint[]) AS line,
        unnest(@lanes::int[]) AS lane
) done
WHERE rounds.line = done.line
  AND rounds.lane = done.lane;

-- name: TakeTurnsInRounds :exec
-- Homes that had their turns go to the end of their rounds, with all their entries.
-- Index: rounds_home. Locks: entries of gates that are locked. Idempotent: a repeat finds
-- none that are older.
UPDATE durable.rounds
SET since = served.since
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@homes::bigint[]) AS home,
        unnest(@sinces::timestamptz[]) AS since
) served
WHERE rounds.gate = served.gate
  AND rounds.home = served.home
  AND rounds.since < served.since;

-- name: EnterRounds :exec
-- Lines that wait in rounds, each in one. Index: rounds_pkey. Locks: entries of lines and
-- gates that are locked. Idempotent: a repeat writes the same.
INSERT INTO durable.rounds (line, lane, gate, home, since, gates)
SELECT given.line, given.lane, given.gate, given.home, given.since, given.gates::bigint[]
FROM (
    SELECT
        unnest(@lines::bigint[]) AS line,
        unnest(@lanes::int[]) AS lane,
        unnest(@gates::bigint[]) AS gate,
        unnest(@homes::bigint[]) AS home,
        unnest(@sinces::timestamptz[]) AS since,
        unnest(@needs::text[]) AS gates
) given
ON CONFLICT (line, lane) DO UPDATE
SET gate = excluded.gate,
    home = excluded.home,
    since = excluded.since,
    gates = excluded.gates;

-- name: TakeRefunds :many
-- Index: refunds_gate. Locks: the rows, which only admissions of the gate delete.
DELETE FROM durable.refunds
WHERE gate = ANY (@gates::bigint[])
RETURNING gate, k, charged_at;

-- name: LiveKeys :many
-- The keys of a dynamic window that have used it within its period.
-- Index: gates_pkey, the range of the limit. Locks: none.
SELECT gate, last_at::bigint AS last_at
FROM durable.gates
WHERE gate >= @first
  AND gate <= @last
  AND last_at > @after::bigint
  AND since IS NOT NULL
ORDER BY since, gate
LIMIT @most;

-- name: Executing :many
-- Runs with permits of gates, those that have executed for the longest time first.
-- Index: permits_pkey, runs_pkey. Locks: none.
SELECT
    permits.gate,
    runs.id,
    coalesce(runs.weights[array_position(runs.gates, permits.gate)], 1)::int AS weight,
    (runs.cancel IS NOT NULL)::boolean AS cancelled
FROM durable.permits
CROSS JOIN LATERAL unnest(permits.runs) AS held (run)
JOIN durable.runs ON runs.id = held.run
WHERE permits.gate = ANY (@gates::bigint[])
  AND runs.state = durable.running()
ORDER BY runs.started_at, runs.id
LIMIT @most;

-- name: Owners :many
-- Which permits there are of these gates and owners.
-- Index: permits_pkey. Locks: none.
SELECT permits.gate, permits.owner
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@owners::uuid[]) AS owner
) asked
JOIN durable.permits ON permits.gate = asked.gate
    AND permits.owner = asked.owner
WHERE permits.expires_at IS NULL
   OR permits.expires_at > now();

-- name: FreeWaiters :many
-- Of the admission's candidates those that no other transaction has in hand: both rows of
-- each are locked. Only where an admission has met one that was.
-- Index: waiting_order, runs_pkey. Locks: both rows, with SKIP LOCKED.
SELECT place.run_id
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@lanes::int[]) AS lane,
        unnest(@dues::timestamptz[]) AS due_at,
        unnest(@ids::uuid[]) AS run_id
) asked,
LATERAL (
    SELECT line.run_id
    FROM durable.waiting line
    JOIN durable.runs pending ON pending.id = line.run_id
    WHERE line.gate = asked.gate
      AND line.lane = asked.lane
      AND line.due_at = asked.due_at
      AND line.run_id = asked.run_id
    FOR NO KEY UPDATE OF line, pending SKIP LOCKED
) place;

-- name: AdoptWaiters :many
-- Adds the cap of their queue to waiters that were enqueued before it, and returns what they
-- say then. A waiter that another transaction has in hand is left out.
-- Index: waiting_order, runs_pkey. Locks: both rows of each, with SKIP LOCKED; the gates in
-- whose lines they wait are locked. Idempotent: a run that has the cap is left as it is.
WITH found AS MATERIALIZED (
    SELECT asked.gate, asked.lane, asked.due_at, asked.run_id, asked.cap, asked.name
    FROM (
        SELECT
            unnest(@gates::bigint[]) AS gate,
            unnest(@lanes::int[]) AS lane,
            unnest(@dues::timestamptz[]) AS due_at,
            unnest(@ids::uuid[]) AS run_id,
            unnest(@caps::bigint[]) AS cap,
            unnest(@names::text[]) AS name
    ) asked,
    LATERAL (
        SELECT line.run_id
        FROM durable.waiting line
        JOIN durable.runs pending ON pending.id = line.run_id
        WHERE line.gate = asked.gate
          AND line.lane = asked.lane
          AND line.due_at = asked.due_at
          AND line.run_id = asked.run_id
          AND pending.state = durable.pending()
          AND pending.limits IS NOT NULL
        FOR NO KEY UPDATE OF line, pending SKIP LOCKED
    ) place
), lanes_known AS (
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(found.cap), found.lane
    FROM found
    ON CONFLICT DO NOTHING
), marked AS (
    UPDATE durable.waiting
    SET more = true
    FROM found
    WHERE waiting.gate = found.gate
      AND waiting.lane = found.lane
      AND waiting.due_at = found.due_at
      AND waiting.run_id = found.run_id
      AND NOT waiting.more
)
UPDATE durable.runs
SET gates = CASE
        WHEN found.cap = ANY (runs.gates) THEN runs.gates
        ELSE coalesce(runs.gates, '{}') || found.cap
    END,
    limits = CASE
        WHEN found.cap = ANY (runs.gates) THEN runs.limits
        ELSE runs.limits || found.name
    END,
    weights = CASE
        WHEN runs.weights IS NULL OR found.cap = ANY (runs.gates) THEN runs.weights
        ELSE runs.weights || 1
    END
FROM found
WHERE runs.id = found.run_id
RETURNING runs.id, runs.limits;

-- name: AdoptRuns :many
-- Moves runs that are due in lanes of capped queues from ready into the line of the cap,
-- with a turn for each lane. Returns the lanes.
-- Index: lanes_pkey, queues_pkey, ready_order for each step, runs_pkey. Locks: the rows of
-- ready together with their runs, with SKIP LOCKED.
-- Idempotent: a repeat finds them moved.
WITH taken AS MATERIALIZED (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM (
            SELECT
                unnest(@lanes::int[]) AS lane,
                unnest(@takes::int[]) AS take
        ) steps,
        LATERAL (
            SELECT first.ctid
            FROM durable.ready first
            JOIN durable.runs pending ON pending.id = first.run_id
            WHERE first.lane = steps.lane
              AND first.due_at <= now()
            ORDER BY first.due_at, first.run_id
            LIMIT steps.take
            FOR NO KEY UPDATE OF first, pending SKIP LOCKED
        ) due
        WHERE EXISTS (
            SELECT
            FROM durable.lanes
            JOIN durable.queues ON queues.name = lanes.queue
            WHERE lanes.id = abs(steps.lane)
              AND queues.cap IS NOT NULL
              AND NOT queues.stopped
        )
    ))
    RETURNING run_id, lane, due_at
), limited AS (
    UPDATE durable.runs
    SET gates = ARRAY[queues.cap],
        limits = ARRAY['queue:' || queues.name]
    FROM taken
    JOIN durable.lanes ON lanes.id = abs(taken.lane)
    JOIN durable.queues ON queues.name = lanes.queue
    WHERE runs.id = taken.run_id
      AND runs.state = durable.pending()
    RETURNING runs.id, runs.lane, runs.due_at, runs.gates, runs.limits, runs.strict
), lanes_known AS (
    INSERT INTO durable.limit_lanes (limit_id, lane)
    SELECT DISTINCT durable.limit_of(limited.gates[1]), limited.lane
    FROM limited
    ON CONFLICT DO NOTHING
), lined AS (
-- block: enter-waiting of limited
    INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
    SELECT
        durable.waits_at(limited.id, limited.gates, limited.strict),
        limited.lane,
        limited.due_at,
        limited.id,
        durable.is_more(limited.gates, limited.limits)
    FROM limited
-- end
), announced AS (
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT DISTINCT limited.lane, now(), limited.gates[1]
    FROM limited
)
SELECT DISTINCT limited.lane::int AS lane
FROM limited;

-- name: LeaveLines :one
-- Takes waiters out of their lines. One that is not there any more (it was cancelled since
-- it was read) makes the statement fail (22012): the admission begins again.
-- Index: waiting_order. Locks: the rows; waits for a transaction that has one, within the
-- lock_timeout.
WITH gone AS (
    DELETE FROM durable.waiting
    USING (
        SELECT
            unnest(@gates::bigint[]) AS gate,
            unnest(@lanes::int[]) AS lane,
            unnest(@dues::timestamptz[]) AS due_at,
            unnest(@ids::uuid[]) AS run_id
    ) left_line
    WHERE waiting.gate = left_line.gate
      AND waiting.lane = left_line.lane
      AND waiting.due_at = left_line.due_at
      AND waiting.run_id = left_line.run_id
    RETURNING waiting.run_id
)
SELECT (1 / (count(*) = cardinality(@ids::uuid[]))::int)::int AS found
FROM gone;

-- name: MoveWaiters :exec
-- Puts waiters into the lines of other gates, with their lane and due instant.
-- Index: waiting_order. Idempotent: a run is in a line once.
INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
SELECT
    unnest(@gates::bigint[]),
    unnest(@lanes::int[]),
    unnest(@dues::timestamptz[]),
    unnest(@ids::uuid[]),
    true;

-- name: PostponeRuns :exec
-- Gives refused runs their later due instant. Their places have it.
-- Index: runs_pkey. Locks: the runs, whose rows of waiting the transaction has deleted.
UPDATE durable.runs
SET due_at = (@dues::jsonb ->> (id::text))::timestamptz
WHERE id = ANY (@ids::uuid[])
  AND state = durable.pending();

-- name: RefuseRuns :many
-- Ends runs that a full limit does not let wait; freed are the lines of turns for places that
-- they had.
-- Index: runs_pkey. Locks: the runs, whose rows of waiting the transaction has deleted.
WITH refused AS (
    UPDATE durable.runs
    SET state = (@states::jsonb ->> (id::text))::smallint,
        finished_at = now()
    WHERE id = ANY (@ids::uuid[])
      AND state = durable.pending()
    RETURNING id, state, lane, strict
), finished AS (
-- block: end-permits of refused
    DELETE FROM durable.permits
    USING refused
    WHERE refused.strict IS NOT NULL
      AND permits.gate = ANY (refused.strict)
      AND permits.owner = refused.id
      AND (permits.until = durable.until_finished() OR refused.state <> durable.dead())
    RETURNING permits.gate
-- end
), freed AS (
-- block: free of finished
    INSERT INTO durable.turns (line, due_at, gate)
    SELECT durable.line_of_gate(freed.gate), clock_timestamp(), freed.gate
    FROM (SELECT DISTINCT finished.gate FROM finished) freed
-- end
    RETURNING line
), reported AS (
    INSERT INTO durable.problems (run_id, ended_at, state, reason, lane)
    SELECT
        refused.id,
        now(),
        refused.state,
        @reasons::jsonb ->> (refused.id::text),
        abs(refused.lane)
    FROM refused
    ON CONFLICT DO NOTHING
)
SELECT
    refused.id,
    ARRAY(SELECT DISTINCT freed.line FROM freed)::int[] AS freed
FROM refused;

-- name: AskOldest :exec
-- Requests the cancellation of runs that hold places that newer ones want.
-- Index: runs_pkey. Locks: the runs, with SKIP LOCKED: a turn brings back who wants them.
WITH locked_runs AS MATERIALIZED (
    SELECT id, claim_id
    FROM durable.runs
    WHERE id = ANY (@ids::uuid[])
      AND state = durable.running()
      AND cancel IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
), asked AS (
    UPDATE durable.runs
    SET cancel = @reason::text
    WHERE id = ANY (ARRAY(SELECT locked_runs.id FROM locked_runs))
      AND state = durable.running()
)
INSERT INTO durable.cancels (claim_id, run_id)
SELECT locked_runs.claim_id, locked_runs.id
FROM locked_runs
ON CONFLICT DO NOTHING;

-- name: EndLapsed :exec
-- Permits of named owners whose time is over. Index: permits_pkey. Locks: the permits, of
-- gates that are locked.
DELETE FROM durable.permits
WHERE gate = ANY (@gates::bigint[])
  AND until = durable.until_expires()
  AND expires_at <= now();

-- name: InsertPermits :exec
-- Index: permits_pkey. A named owner that has a permit keeps its places, for longer; one
-- whose time is over has been deleted.
INSERT INTO durable.permits (gate, owner, expires_at, k, until, runs)
SELECT
    given.gate,
    given.owner,
    given.expires_at,
    given.places,
    given.until,
    given.runs::uuid[]
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@owners::uuid[]) AS owner,
        unnest(@expiries::timestamptz[]) AS expires_at,
        unnest(@places::int[]) AS places,
        unnest(@untils::text[]) AS until,
        unnest(@runs::text[]) AS runs
) given
ON CONFLICT (gate, owner) DO UPDATE
SET expires_at = greatest(permits.expires_at, excluded.expires_at),
    k = CASE WHEN permits.until = durable.until_expires() THEN permits.k ELSE excluded.k END,
    until = excluded.until,
    runs = excluded.runs;

-- name: InsertTurns :exec
-- Turns for what room is left, each only where its gate has none on that line that is due
-- no later. Index: turns_gate (unindexed: see TakeTurns). Locks: only what it inserts.
INSERT INTO durable.turns (line, due_at, gate)
SELECT given.line, given.due_at, given.gate
FROM (
    SELECT
        unnest(@lines::int[]) AS line,
        unnest(@dues::timestamptz[]) AS due_at,
        unnest(@gates::bigint[]) AS gate
) given
WHERE NOT EXISTS (
    SELECT
    FROM durable.turns
    WHERE turns.gate = given.gate
      AND durable.unindexed(turns.line) = given.line
      AND turns.due_at <= given.due_at
);

-- name: AddTurns :exec
-- Turns of runs that are due again later, always, as an enqueue inserts them.
-- Locks: only what it inserts.
INSERT INTO durable.turns (line, due_at, gate)
SELECT
    unnest(@lines::int[]),
    unnest(@dues::timestamptz[]),
    unnest(@gates::bigint[]);

-- name: Keep :exec
-- Index: kept_pkey. Locks: rows of gates that are locked.
INSERT INTO durable.kept (gate, lane, expires_at)
SELECT
    unnest(@gates::bigint[]),
    unnest(@lanes::int[]),
    unnest(@expiries::timestamptz[])
ON CONFLICT (gate, lane) DO UPDATE
SET expires_at = excluded.expires_at;

-- name: Unkeep :exec
-- Index: kept_pkey. Locks: rows of gates that are locked.
DELETE FROM durable.kept
USING (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@lanes::int[]) AS lane
) done
WHERE kept.gate = done.gate
  AND kept.lane = done.lane;

-- name: WriteRates :exec
-- The state of rates. Index: gates_pkey. Locks: gates that are locked.
UPDATE durable.gates
SET tat = given.tat,
    bucket_at = given.bucket_at::bigint[],
    bucket_n = given.bucket_n::int[],
    since = given.since,
    last_at = given.last_at
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@tats::bigint[]) AS tat,
        unnest(@bucket_ats::text[]) AS bucket_at,
        unnest(@bucket_ns::text[]) AS bucket_n,
        unnest(@sinces::bigint[]) AS since,
        unnest(@last_ats::bigint[]) AS last_at
) given
WHERE gates.gate = given.gate;

-- name: NameGates :exec
-- The keys of gates, for people. Index: gates_pkey. Locks: gates that are locked.
UPDATE durable.gates
SET key = given.key
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@keys::text[]) AS key
) given
WHERE gates.gate = given.gate;

-- name: StartAdmitted :many
-- The lease and the start of admitted runs, as ClaimRuns has them. They start at the
-- instant of the decision, by which a refund finds what it was charged with.
-- Index: leases_pkey, runs_pkey. Locks: the runs; waits for a transaction that has one,
-- within the lock_timeout.
-- Idempotent: a repeat with the same claim_id violates leases_pkey (23505), and the whole
-- admission with it; ClaimedRuns then returns what the first one got.
WITH granted AS (
    INSERT INTO durable.leases (
        claim_id, worker, acquired_at, expires_at, duration, alone, run_ids, gates, strict
    )
    VALUES (
        @claim_id::uuid,
        @worker::int,
        now(),
        now() + (@duration::bigint) * interval '1 microsecond',
        @duration::bigint,
        @alone::boolean,
        @ids::uuid[],
        @gates::bigint[],
        @strict::boolean
    )
)
UPDATE durable.runs
SET state = durable.running(),
    claim_id = @claim_id::uuid,
    worker = @worker::int,
    attempt = attempt + 1,
    started_at = @at::timestamptz,
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (@ids::uuid[])
  AND state = durable.pending()
RETURNING
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    coalesce(expires_at <= now(), false)::boolean AS expired,
    trace, key, schedule, occurs_at, tags,
    metadata::text AS metadata,
    args::text AS args,
    (links IS NOT NULL)::boolean AS linked,
    cardinality(@ids::uuid[])::int AS dealt;
