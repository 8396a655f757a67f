-- name: WaitingByLine :many
-- How many runs wait in the lines of a range of gates, the longest first, of so many rows at
-- most. Index: the primary key, a range.
SELECT
    waiters.gate,
    count(*) AS waiting,
    CAST(min(waiters.due_at) AS INTEGER) AS oldest
FROM (
    SELECT waiting.gate, waiting.due_at
    FROM waiting
    WHERE waiting.gate BETWEEN @first AND @last
    ORDER BY waiting.gate
    LIMIT @most
) waiters
GROUP BY waiters.gate
ORDER BY waiting DESC, waiters.gate;

-- name: WaitingBeside :many
-- How many runs of other limits' lines wait in the rounds of a range of gates. Index:
-- rounds_gate, a range of so many rows at most, and the primary key of waiting for each.
SELECT
    entry.gate,
    entry.line,
    count(*) AS waiting,
    CAST(min(beside.due_at) AS INTEGER) AS oldest
FROM (
    SELECT rounds.gate, rounds.line, rounds.lane
    FROM rounds
    WHERE rounds.gate BETWEEN @first AND @last
      AND NOT abs(rounds.line) BETWEEN @first AND @last
    LIMIT @most
) entry
CROSS JOIN waiting beside ON beside.gate = entry.line AND beside.lane = entry.lane
GROUP BY entry.gate, entry.line;

-- name: FirstWaiting :one
-- The limits of a run that waits in a line of a gate. Index: the primary keys.
SELECT runs.limits
FROM waiting
CROSS JOIN runs ON runs.id = waiting.run_id
WHERE waiting.gate = @gate
ORDER BY waiting.lane, waiting.due_at, waiting.run_id
LIMIT 1;

-- name: FirstHolding :one
-- The limits of a run that has a permit of a gate. Index: the unique one of permits.
SELECT runs.limits
FROM permits
CROSS JOIN runs ON runs.id = permits.run_id
WHERE permits.gate = @gate
LIMIT 1;

-- name: HeldByGate :many
-- What permits hold of the gates of a range, of so many rows at most. Index: the unique one
-- of permits, a range.
SELECT held.gate, CAST(sum(held.weight) AS INTEGER) AS places
FROM (
    SELECT permits.gate, permits.weight
    FROM permits
    WHERE permits.gate BETWEEN @first AND @last
      AND (permits.expires_at = 0 OR permits.expires_at > @now)
    LIMIT @most
) held
GROUP BY held.gate;

-- name: PenalizedGates :many
-- Index: the integer key, a range.
SELECT gates.gate, gates.not_before
FROM gates
WHERE gates.gate BETWEEN @first AND @last
  AND gates.not_before > @now
LIMIT @most;
