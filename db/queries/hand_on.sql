-- The places that a settlement frees, for the runs that wait for them, in the transaction of
-- the settlement. LockFreed locks gates; HandOn reads, in a snapshot younger than those
-- locks, and starts what it finds, as an admission would (see admission.sql). It handles
-- only gates at which the decision is no more than a count, and leaves the turns of the
-- others to admissions.

-- name: LockFreed :exec
-- Locks the gates of the turns that are due on lines, and leaves them in admission.gates,
-- those with the oldest turns first. The turns stay where they are.
-- Index: turns_order for each line, gates_pkey. Locks: the gates, with SKIP LOCKED.
-- Idempotent: it writes nothing.
WITH due AS MATERIALIZED (
    SELECT answered.gate, min(answered.due_at) AS due_at
    FROM (
        SELECT
            unnest(@lines::int[]) AS line,
            unnest(@takes::int[]) AS take
    ) asked,
    LATERAL (
        SELECT first.gate, first.due_at
        FROM durable.turns first
        WHERE first.line = asked.line
          AND first.due_at <= (SELECT clock_timestamp())
        ORDER BY first.due_at, first.gate
        LIMIT asked.take
    ) answered
    GROUP BY answered.gate
), locked AS MATERIALIZED (
    SELECT gates.gate
    FROM durable.gates
    WHERE gates.gate = ANY (ARRAY(SELECT due.gate FROM due))
    FOR UPDATE SKIP LOCKED
)
SELECT pg_catalog.set_config(
    'admission.gates',
    coalesce(array_agg(due.gate ORDER BY due.due_at, due.gate), '{}')::text,
    true
)
FROM due
JOIN locked ON locked.gate = due.gate;

-- name: HandOn :many
-- Starts the first waiters of the gates in admission.gates, as many as have places: one of
-- each gate before a second of any, higher priorities first, within @room. Deep says of a
-- run that the line of its gate continues after those that were read.
-- A gate is left out, and keeps its turns, unless its limit is a semaphore that is active
-- and lets runs wait; no permit of it expires by itself, no penalty is over it, no place
-- of it is kept and no line waits in its round; all runs that are due there wait in one
-- lane, which is the caller's, is not paused and has no cap; and each of the first ones needs
-- one place of this gate alone. So is one of whose waiters another transaction has one.
-- The turns of a gate that is full afterwards are deleted, and those of one at which nothing
-- waits. Turns and waiters are due by the same clock.at: now() is older than the turns of the
-- settlement. A line that has a mark is read from it on, unless a turn is older.
-- Index: permits_pkey, limit_lanes_pkey, waiting_order for each line, runs_pkey, turns_gate
-- (unindexed: see TakeTurns), leases_pkey. Locks: the waiters and their runs, with SKIP
-- LOCKED: the transaction has settled others.
-- Idempotent: a repeat with the same claim_id violates leases_pkey (23505), as a claim does,
-- or finds nothing to start.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), asked AS MATERIALIZED (
    SELECT
        unnest(
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
        ) AS gate,
        generate_subscripts(
            nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[],
            1
        ) AS age
), marks AS MATERIALIZED (
    SELECT
        unnest(@mark_gates::bigint[]) AS gate,
        unnest(@mark_lanes::int[]) AS lane,
        unnest(@mark_dues::timestamptz[]) AS due_at
), line AS MATERIALIZED (
    SELECT
        asked.gate,
        asked.age,
        due.lane,
        due.lanes,
        coalesce(
            (
                SELECT marks.due_at
                FROM marks
                WHERE marks.gate = asked.gate
                  AND marks.lane = due.lane
            ),
            '-infinity'
        ) AS low
    FROM asked
    CROSS JOIN LATERAL (
        SELECT
            min(limit_lanes.lane) AS lane,
            count(*) AS lanes
        FROM durable.limit_lanes
        WHERE limit_lanes.limit_id = durable.limit_of(asked.gate)
          AND EXISTS (
              SELECT
              FROM durable.waiting
              WHERE waiting.gate = asked.gate
                AND waiting.lane = limit_lanes.lane
                AND waiting.due_at >= coalesce(
                    (
                        SELECT marks.due_at
                        FROM marks
                        WHERE marks.gate = asked.gate
                          AND marks.lane = limit_lanes.lane
                    ),
                    '-infinity'
                )
                AND waiting.due_at <= (SELECT clock.at FROM clock)
          )
    ) due
), fit AS MATERIALIZED (
    SELECT
        line.gate,
        line.age,
        line.lane,
        line.low,
        lanes.priority,
        limits.most - used.places AS free
    FROM line
    JOIN durable.lanes ON lanes.id = line.lane
    JOIN durable.gates ON gates.gate = line.gate
    JOIN durable.limits ON limits.id = durable.limit_of(line.gate)
    CROSS JOIN LATERAL (
        SELECT
            coalesce(sum(permits.k), 0) AS places,
            count(permits.expires_at) AS expiring
        FROM durable.permits
        WHERE permits.gate = line.gate
    ) used
    WHERE line.lanes = 1
      AND line.lane = ANY (@lanes::int[])
      AND NOT lanes.paused
      AND limits.kind = durable.limit_semaphore()
      AND limits.state = durable.limit_active()
      AND limits.action <= durable.full_wait()
      AND limits.most > used.places
      AND used.expiring = 0
      AND gates.key IS NOT NULL
      AND coalesce(gates.not_before, now()) <= now()
      AND NOT EXISTS (
          SELECT
          FROM durable.kept
          WHERE kept.gate = line.gate
      )
      AND NOT EXISTS (
          SELECT
          FROM durable.rounds
          WHERE rounds.gate = line.gate
      )
      AND NOT EXISTS (
          SELECT
          FROM durable.turns
          WHERE turns.gate = line.gate
            AND turns.due_at < line.low
      )
), read AS MATERIALIZED (
    SELECT
        fit.gate,
        fit.age,
        fit.priority,
        fit.free,
        first.place,
        first.run_id,
        first.more,
        row_number() OVER (PARTITION BY fit.gate ORDER BY first.due_at, first.run_id) AS nth
    FROM fit
    CROSS JOIN LATERAL (
        SELECT
            waiting.ctid::tid AS place,
            waiting.due_at,
            waiting.run_id,
            waiting.more
        FROM durable.waiting
        WHERE waiting.gate = fit.gate
          AND waiting.lane = fit.lane
          AND waiting.due_at >= fit.low
          AND waiting.due_at <= (SELECT clock.at FROM clock)
        ORDER BY waiting.due_at, waiting.run_id
        LIMIT least(
            fit.free,
            (SELECT durable.part_of(@room::int, count(*)) FROM asked)
        ) + 1
    ) first
), chosen AS MATERIALIZED (
    SELECT ranked.gate, ranked.place, ranked.run_id, ranked.free
    FROM (
        SELECT
            read.gate,
            read.place,
            read.run_id,
            read.free,
            row_number() OVER (ORDER BY read.priority DESC, read.nth, read.age) AS rank
        FROM read
        WHERE read.nth <= read.free
          AND read.gate NOT IN (SELECT other.gate FROM read other WHERE other.more)
    ) ranked
    WHERE ranked.rank <= @room::int
), locked AS MATERIALIZED (
    SELECT spot.gate, spot.run_id
    FROM durable.waiting spot
    JOIN durable.runs pending ON pending.id = spot.run_id
    WHERE spot.ctid = ANY (ARRAY(SELECT chosen.place FROM chosen))
      AND pending.state = durable.pending()
    FOR NO KEY UPDATE OF spot, pending SKIP LOCKED
), handed AS MATERIALIZED (
    SELECT
        chosen.gate,
        count(*) = max(chosen.free) AS full,
        count(*) < (SELECT count(*) FROM read WHERE read.gate = chosen.gate) AS deep
    FROM chosen
    GROUP BY chosen.gate
    HAVING count(*) = (SELECT count(*) FROM locked WHERE locked.gate = chosen.gate)
), started AS MATERIALIZED (
    SELECT chosen.gate, chosen.place, chosen.run_id
    FROM chosen
    WHERE chosen.gate IN (SELECT handed.gate FROM handed)
), gone AS (
    DELETE FROM durable.waiting
    WHERE ctid = ANY (ARRAY(SELECT started.place FROM started))
), answered AS (
    DELETE FROM durable.turns
    WHERE ctid = ANY (ARRAY(
        SELECT turn.ctid
        FROM (
            SELECT handed.gate FROM handed WHERE handed.full
            UNION ALL
            SELECT line.gate
            FROM line
            WHERE line.lanes = 0
              AND line.gate > 0
              AND NOT EXISTS (
                  SELECT
                  FROM durable.rounds
                  WHERE rounds.gate = line.gate
              )
              AND line.gate NOT IN (SELECT marks.gate FROM marks)
        ) done,
        LATERAL (
            SELECT turns.ctid
            FROM durable.turns
            WHERE turns.gate = done.gate
              AND durable.unindexed(turns.line) = ANY (@lines::int[])
              AND turns.due_at <= (SELECT clock.at FROM clock)
            LIMIT @spare
            FOR UPDATE SKIP LOCKED
        ) turn
    ))
), permitted AS (
    INSERT INTO durable.permits (gate, owner, k, until, runs)
    SELECT
        started.gate,
        @claim_id::uuid,
        count(*),
        durable.until_settled(),
        array_agg(started.run_id ORDER BY started.run_id)
    FROM started
    GROUP BY started.gate
), granted AS (
    INSERT INTO durable.leases (
        claim_id, worker, acquired_at, expires_at, duration, alone, run_ids, gates, strict
    )
    SELECT
        @claim_id::uuid,
        @worker::int,
        now(),
        now() + (@duration::bigint) * interval '1 microsecond',
        @duration::bigint,
        false,
        array_agg(started.run_id),
        array_agg(DISTINCT started.gate),
        false
    FROM started
    HAVING count(*) > 0
)
UPDATE durable.runs
SET state = durable.running(),
    claim_id = @claim_id::uuid,
    worker = @worker::int,
    attempt = attempt + 1,
    started_at = (SELECT clock.at FROM clock),
    fence = greatest(fence + 1, (SELECT (extract(epoch FROM now()) * 1000000)::bigint))
WHERE id = ANY (ARRAY(SELECT started.run_id FROM started))
  AND state = durable.pending()
RETURNING
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout,
    coalesce(expires_at <= now(), false)::boolean AS expired,
    trace, key, schedule, occurs_at, tags,
    metadata::text AS metadata,
    args::text AS args, (links IS NOT NULL)::boolean AS linked,
    (SELECT count(*) FROM started)::int AS dealt,
    gates[1]::bigint AS gate,
    (gates[1] IN (SELECT handed.gate FROM handed WHERE handed.deep))::boolean AS deep;
