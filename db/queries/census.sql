-- name: WaitingByLine :many
-- How many runs wait in the lines of a range of gates, the longest first, of so many rows at
-- most; with how many lines and rows there are. Index: waiting_order, a range. Locks: none.
SELECT
    counted.gate,
    counted.waiting,
    counted.oldest::timestamptz AS oldest,
    count(*) OVER ()::bigint AS lines,
    (sum(counted.waiting) OVER ())::bigint AS total
FROM (
    SELECT waiters.gate, count(*) AS waiting, min(waiters.due_at) AS oldest
    FROM (
        SELECT waiting.gate, waiting.due_at
        FROM durable.waiting
        WHERE waiting.gate >= @first
          AND waiting.gate <= @last
        ORDER BY waiting.gate
        LIMIT @most
    ) waiters
    GROUP BY waiters.gate
) counted
ORDER BY counted.waiting DESC, counted.gate
LIMIT @listed;

-- name: SampleByLine :many
-- The same from about so many percent of the pages of waiting. Locks: none.
SELECT
    waiting.gate,
    count(*) AS waiting,
    min(waiting.due_at)::timestamptz AS oldest
FROM durable.waiting TABLESAMPLE SYSTEM (@percent::real)
WHERE waiting.gate >= @first
  AND waiting.gate <= @last
GROUP BY waiting.gate
ORDER BY count(*) DESC, waiting.gate
LIMIT @listed;

-- name: WaitingBeside :many
-- How many runs of other limits' lines wait in the rounds of a range of gates, by gate, and
-- one of the lines. Index: rounds_order, a range of so many rows at most, waiting_order for
-- each. Locks: none.
SELECT
    entry.gate,
    entry.line,
    sum(counted.waiting)::bigint AS waiting,
    min(counted.oldest)::timestamptz AS oldest
FROM (
    SELECT rounds.gate, rounds.line, rounds.lane
    FROM durable.rounds
    WHERE rounds.gate >= @first
      AND rounds.gate <= @last
      AND (abs(rounds.line) < @first OR abs(rounds.line) > @last)
    LIMIT @listed
) entry
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(waiters.due_at) AS oldest
    FROM (
        SELECT waiting.due_at
        FROM durable.waiting
        WHERE waiting.gate = entry.line
          AND waiting.lane = entry.lane
        LIMIT @most
    ) waiters
) counted
WHERE counted.waiting > 0
GROUP BY entry.gate, entry.line;

-- name: GatesOfLines :many
-- The gates that the first run of each of these lines needs.
-- Index: waiting_order, runs_pkey. Locks: none.
SELECT lines.line::bigint AS line, runs.gates
FROM (SELECT unnest(@lines::bigint[]) AS line) lines
CROSS JOIN LATERAL (
    SELECT waiting.run_id
    FROM durable.waiting
    WHERE waiting.gate = lines.line
    ORDER BY waiting.lane, waiting.due_at, waiting.run_id
    LIMIT 1
) first_waiting
JOIN durable.runs ON runs.id = first_waiting.run_id
WHERE runs.gates IS NOT NULL;

-- name: HeldByGate :many
-- The gates of a range of which permits hold most, among so many permits; with how many gates
-- there are. Index: permits_pkey, a range. Locks: none.
SELECT
    held.gate,
    sum(held.k)::bigint AS places,
    count(*) OVER ()::bigint AS gates
FROM (
    SELECT permits.gate, permits.k
    FROM durable.permits
    WHERE permits.gate >= @first
      AND permits.gate <= @last
      AND (permits.expires_at IS NULL OR permits.expires_at > now())
    LIMIT @most
) held
GROUP BY held.gate
HAVING sum(held.k) > 0
ORDER BY sum(held.k) DESC, held.gate
LIMIT @listed;

-- name: PenalizedGates :many
-- Index: gates_pkey, a range. Locks: none.
SELECT gates.gate
FROM durable.gates
WHERE gates.gate >= @first
  AND gates.gate <= @last
  AND gates.not_before > now()
LIMIT @listed;

-- name: DescribeGates :many
-- What people want to know of gates: their key, as it is kept or as a run in the line given
-- or with a permit says it, what permits hold, and a penalty.
-- Index: gates_pkey, permits_pkey, waiting_order, runs_pkey. Locks: none.
SELECT
    asked.gate::bigint AS gate,
    coalesce(gates.key, '')::text AS key,
    gates.not_before,
    coalesce(gates.not_before > now(), false)::boolean AS penalized,
    (
        SELECT coalesce(sum(permits.k), 0)
        FROM durable.permits
        WHERE permits.gate = asked.gate
          AND (permits.expires_at IS NULL OR permits.expires_at > now())
    )::bigint AS used,
    coalesce(
        (
            SELECT runs.limits
            FROM durable.waiting
            JOIN durable.runs ON runs.id = waiting.run_id
            WHERE waiting.gate = asked.line
            ORDER BY waiting.lane, waiting.due_at, waiting.run_id
            LIMIT 1
        ),
        (
            SELECT runs.limits
            FROM durable.permits
            JOIN durable.runs ON runs.id = permits.runs[1]
            WHERE permits.gate = asked.gate
            LIMIT 1
        ),
        '{}'
    )::text[] AS limits
FROM (
    SELECT
        unnest(@gates::bigint[]) AS gate,
        unnest(@lines::bigint[]) AS line
) asked
LEFT JOIN durable.gates ON gates.gate = asked.gate;
