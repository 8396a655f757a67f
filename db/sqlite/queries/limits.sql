-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled.

-- name: ListLimits :many
-- The whole table, a small one.
SELECT *
FROM limits
ORDER BY name;

-- name: InsertLimit :one
-- The caller has found no limit of this name in the same transaction.
INSERT INTO limits (
    name, kind, most, period, burst, buckets, least_share, most_share, action, retry_after, hash,
    edited, declared_at, hash_at, brought_at, secret
)
VALUES (
    @name, @kind, @most, @period, @burst, @buckets, @least_share, @most_share, @action,
    @retry_after, @hash, @edited, @declared_at, @hash_at, @brought_at, @secret
)
RETURNING id;

-- name: UpdateLimit :exec
-- Index: the integer key. Idempotent: a repeat writes the same values.
UPDATE limits
SET most = @most,
    period = @period,
    burst = @burst,
    buckets = @buckets,
    least_share = @least_share,
    most_share = @most_share,
    action = @action,
    retry_after = @retry_after,
    state = @state,
    hash = @hash,
    edited = @edited,
    declared_at = @declared_at,
    hash_at = @hash_at,
    brought_at = @brought_at
WHERE id = @id;

-- name: InsertLimitLane :exec
-- Idempotent: a repeat finds the row.
INSERT OR IGNORE INTO limit_lanes (limit_id, lane)
VALUES (@limit_id, @lane);

-- name: ListLimitLanes :many
-- Index: the primary key, then those of lanes and queues.
SELECT
    limit_lanes.lane, lanes.priority,
    CAST(
        coalesce(queues.paused AND (queues.cap IS NULL OR queues.stopped), 0) AS INTEGER
    ) AS paused,
    CAST(coalesce(queues.cap, 0) AS INTEGER) AS cap,
    lanes.queue
FROM limit_lanes
CROSS JOIN lanes ON lanes.id = abs(limit_lanes.lane)
LEFT JOIN queues ON queues.name = lanes.queue
WHERE limit_lanes.limit_id = @limit_id;

-- name: FindLaneOf :one
-- Index: those of lanes and queues.
SELECT
    lanes.priority,
    CAST(
        coalesce(queues.paused AND (queues.cap IS NULL OR queues.stopped), 0) AS INTEGER
    ) AS paused,
    CAST(coalesce(queues.cap, 0) AS INTEGER) AS cap,
    lanes.queue
FROM lanes
LEFT JOIN queues ON queues.name = lanes.queue
WHERE lanes.id = abs(@lane);

-- name: ListTurnHeads :many
-- Reads limit_lanes, a small table, and probes the key of turns three times for each
-- row. No locks. An instant of -1: no turn is there.
SELECT
    limit_lanes.limit_id, lanes.id, lanes.queue, lanes.job, lanes.priority,
    CAST(
        coalesce((SELECT min(turns.due_at) FROM turns WHERE turns.line = lanes.id), -1) AS INTEGER
    ) AS due_at,
    CAST(
        coalesce((SELECT min(turns.due_at) FROM turns WHERE turns.line = -lanes.id), -1) AS INTEGER
    ) AS isolated_due_at,
    CAST(
        coalesce(
            (
                SELECT min(turns.due_at)
                FROM turns
                WHERE turns.line = 1073741824 + limit_lanes.limit_id
            ),
            -1
        ) AS INTEGER
    ) AS limit_due_at
FROM limit_lanes
CROSS JOIN lanes ON lanes.id = abs(limit_lanes.lane)
WHERE lanes.queue IN (SELECT value FROM json_each(@queues))
  AND lanes.job IN (SELECT value FROM json_each(@jobs))
  AND NOT EXISTS (
      SELECT 1
      FROM queues
      WHERE queues.name = lanes.queue
        AND queues.paused
        AND (queues.cap IS NULL OR queues.stopped)
  )
ORDER BY lanes.id, limit_lanes.limit_id;

-- name: ListAdopted :many
-- Index: the primary keys of lanes, queues and ready, then the key of runs. The first due
-- runs of a line of ready whose queue is capped.
SELECT
    ready.due_at, ready.run_id, queues.name,
    coalesce(runs.state, -1) AS state
FROM lanes
CROSS JOIN queues ON queues.name = lanes.queue
CROSS JOIN ready ON ready.lane = @lane
LEFT JOIN runs ON runs.id = ready.run_id
WHERE lanes.id = abs(@lane)
  AND queues.cap IS NOT NULL
  AND NOT queues.stopped
  AND ready.due_at <= @now
ORDER BY ready.due_at, ready.run_id
LIMIT @most;

-- name: SetLimitsOf :exec
-- Index: runs_id. Idempotent: a repeat writes the same.
UPDATE runs
SET limits = @limits
WHERE id = @id;

-- name: InsertCapLanes :exec
-- Idempotent: a repeat finds the rows.
INSERT OR IGNORE INTO limit_lanes (limit_id, lane)
SELECT CAST(@limit_id AS INTEGER), lanes.id
FROM lanes
WHERE lanes.queue = @queue;

-- name: InsertWaiting :exec
-- Idempotent: a repeat finds the row.
INSERT OR IGNORE INTO waiting (gate, lane, due_at, run_id)
VALUES (@gate, @lane, @due_at, @run_id);

-- name: DeleteWaiting :execrows
-- Index: the primary key.
DELETE FROM waiting
WHERE gate = @gate
  AND lane = @lane
  AND due_at = @due_at
  AND run_id = @run_id;

-- name: ListWaiting :many
-- Index: the primary key, then the key of runs. The first due runs of a line.
SELECT
    waiting.due_at, waiting.run_id,
    coalesce(runs.seq, 0) AS seq,
    coalesce(runs.state, -1) AS state,
    runs.limits
FROM waiting
LEFT JOIN runs ON runs.id = waiting.run_id
WHERE waiting.gate = @gate
  AND waiting.lane = @lane
  AND waiting.due_at <= @now
ORDER BY waiting.due_at, waiting.run_id
LIMIT @most;

-- name: FindStartable :one
-- Index: the integer key. FindClaimed for a run that has been found pending in the same
-- transaction.
SELECT
    id, lane, attempt, max_attempts, crash_count, fence, due_at, created_at, timeout, expires_at,
    trace, key, schedule, occurs_at, tags, metadata, args, links
FROM runs
WHERE seq = @seq;

-- name: InsertTurn :execrows
-- Index: turns_gate. Unless the gate has a turn on this line that is due by an instant.
INSERT OR IGNORE INTO turns (line, due_at, gate)
SELECT CAST(@line AS INTEGER), CAST(@due_at AS INTEGER), CAST(@gate AS INTEGER)
WHERE NOT EXISTS (
      SELECT 1
      FROM turns
      WHERE turns.gate = @gate
        AND turns.line = @line
        AND turns.due_at <= @until
  );

-- name: Announce :execrows
-- Indexes: the key of waiting, rounds_gate, and turns_gate. A turn on the limit's line, if a
-- run waits in the gate's line or round and no turn is due there.
INSERT OR IGNORE INTO turns (line, due_at, gate)
SELECT CAST(@line AS INTEGER), CAST(@now AS INTEGER), CAST(@gate AS INTEGER)
WHERE (
      EXISTS (SELECT 1 FROM waiting WHERE waiting.gate = @gate)
      OR EXISTS (SELECT 1 FROM rounds WHERE rounds.gate = @gate)
  )
  AND NOT EXISTS (
      SELECT 1
      FROM turns
      WHERE turns.gate = @gate
        AND turns.line = @line
        AND turns.due_at <= @now
  );

-- name: ListTurns :many
-- Index: the primary key. The first turns of a line that are due.
SELECT due_at, gate
FROM turns
WHERE line = @line
  AND due_at <= @now
ORDER BY due_at, gate
LIMIT @most;

-- name: DeleteTurns :exec
-- Index: the primary key. The turns of a line up to one of them.
DELETE FROM turns
WHERE line = @line
  AND due_at <= @due_at
  AND (due_at < @due_at OR gate <= @gate);

-- name: FindGate :one
-- Index: the integer key.
SELECT *
FROM gates
WHERE gate = @gate;

-- name: SaveRate :exec
-- Idempotent: a repeat writes the same values.
INSERT INTO gates (gate, tat, parts, since, last_at, not_before)
VALUES (@gate, @tat, @parts, @since, @last_at, 0)
ON CONFLICT (gate) DO UPDATE
SET tat = excluded.tat,
    parts = excluded.parts,
    since = excluded.since,
    last_at = excluded.last_at;

-- name: SavePenalty :exec
-- The longer one counts. Idempotent: a repeat changes nothing.
INSERT INTO gates (gate, tat, since, last_at, not_before)
VALUES (@gate, 0, 0, 0, @not_before)
ON CONFLICT (gate) DO UPDATE
SET not_before = max(not_before, excluded.not_before);

-- name: EndPenalty :execrows
-- Index: the integer key. Idempotent: a repeat finds no penalty.
UPDATE gates
SET not_before = 0
WHERE gate = @gate
  AND not_before > @now;

-- name: ListLiveKeys :many
-- Index: the integer key, over the gates of one limit. The keys of a dynamic window that
-- have used it of late.
SELECT gate, last_at
FROM gates
WHERE gate BETWEEN @first AND @last
  AND last_at > @after
  AND gate <> @parent
ORDER BY since, gate
LIMIT @most;

-- name: GateUse :one
-- Index: the unique one of permits. What permits hold of a gate, and when the first one
-- of a named owner expires; 0: none does.
SELECT
    CAST(coalesce(sum(weight), 0) AS INTEGER) AS used,
    CAST(coalesce(min(nullif(expires_at, 0)), 0) AS INTEGER) AS frees_at
FROM permits
WHERE gate = @gate
  AND (expires_at = 0 OR expires_at > @now);

-- name: LimitUse :one
-- Index: the unique one of permits, over the gates of one limit.
SELECT CAST(coalesce(sum(weight), 0) AS INTEGER) AS used
FROM permits
WHERE gate BETWEEN @first AND @last
  AND (expires_at = 0 OR expires_at > @now);

-- name: DeleteExpired :exec
-- Index: the unique one of permits.
DELETE FROM permits
WHERE gate = @gate
  AND expires_at > 0
  AND expires_at <= @now;

-- name: InsertPermit :exec
-- That of a named owner takes the place of the one that the owner has.
INSERT INTO permits (gate, owner, run_id, weight, until, expires_at)
VALUES (@gate, @owner, @run_id, @weight, @until, @expires_at)
ON CONFLICT (gate, owner, run_id) DO UPDATE
SET weight = excluded.weight,
    until = excluded.until,
    expires_at = excluded.expires_at;

-- name: HasPermit :one
-- Index: the unique one of permits.
SELECT count(*)
FROM permits
WHERE gate = @gate
  AND owner = @owner
  AND run_id = @run_id
  AND (expires_at = 0 OR expires_at > @now);

-- name: ExtendPermit :execrows
-- Of a named owner: it has its places until the later of two instants. Index: the unique
-- one of permits.
UPDATE permits
SET expires_at = max(expires_at, CAST(@expires_at AS INTEGER))
WHERE gate = @gate
  AND owner = @owner
  AND run_id = x''
  AND expires_at > @now;

-- name: RenewPermit :execrows
-- Index: the unique one of permits.
UPDATE permits
SET expires_at = @expires_at
WHERE gate = @gate
  AND owner = @owner
  AND run_id = x''
  AND expires_at > @now;

-- name: ReleasePermits :many
-- Index: permits_run. The permits of a run that end with the state it has now: settled
-- ones, and of the others those for which the caller says so. Idempotent: a repeat finds
-- no row.
DELETE FROM permits
WHERE run_id = @run_id
  AND (
      until = 115
      OR until = 102 AND @finished <> 0
      OR until = 107 AND @gone <> 0
  )
RETURNING gate;

-- name: DeletePermitsOf :execrows
-- Index: the unique one of permits. All of an owner.
DELETE FROM permits
WHERE gate = @gate
  AND owner = @owner;

-- name: ListExecuting :many
-- Index: the unique one of permits, then the key of runs. Runs with a permit of a gate,
-- those that have executed for the longest time first.
SELECT permits.run_id, permits.weight, runs.claim_id,
    CAST(runs.cancel IS NOT NULL AS INTEGER) AS cancelled
FROM permits
CROSS JOIN runs ON runs.id = permits.run_id
WHERE permits.gate = @gate
  AND runs.state = 1
ORDER BY permits.seq
LIMIT @most;

-- name: ListKept :many
-- Index: the primary key.
SELECT lane, expires_at
FROM kept
WHERE gate = @gate;

-- name: SaveKept :exec
INSERT INTO kept (gate, lane, expires_at)
VALUES (@gate, @lane, @expires_at)
ON CONFLICT (gate, lane) DO UPDATE
SET expires_at = excluded.expires_at;

-- name: DeleteKept :exec
DELETE FROM kept
WHERE gate = @gate
  AND lane = @lane;

-- name: InsertRefund :exec
INSERT INTO refunds (gate, weight, charged_at)
VALUES (@gate, @weight, @charged_at);

-- name: TakeRefunds :many
-- Index: refunds_gate.
DELETE FROM refunds
WHERE gate = @gate
RETURNING weight, charged_at;

-- name: FindLimitsOf :one
-- Index: the key of runs.
SELECT limits, started_at
FROM runs
WHERE id = @id;

-- name: PutOff :exec
-- A pending run that a limit has put off, whose row of waiting the caller moves.
UPDATE runs
SET due_at = @due_at
WHERE id = @id
  AND state = 0;

-- name: RefuseRun :exec
-- A pending run that a limit does not let wait, whose row of waiting the caller deletes.
UPDATE runs
SET state = @state,
    finished_at = @finished_at
WHERE id = @id
  AND state = 0;

-- name: CountWaiting :one
-- Of a limit: the runs in the lines of its gates and of sets that begin with one, and those
-- of other limits' lines in its rounds. Indexes: the primary key of waiting, and rounds_gate,
-- at most so many rows. Since when the oldest has been due; 0: none.
WITH bounds AS (
    SELECT CAST(@first AS INTEGER) AS lowest, CAST(@last AS INTEGER) AS highest
)
SELECT
    count(*) AS waiting,
    CAST(coalesce(min(counted.due_at), 0) AS INTEGER) AS oldest
FROM (
    SELECT own.due_at
    FROM bounds
    CROSS JOIN waiting own
    WHERE own.gate >= bounds.lowest
      AND own.gate <= bounds.highest
    UNION ALL
    SELECT sets.due_at
    FROM bounds
    CROSS JOIN waiting sets
    WHERE sets.gate >= -bounds.highest
      AND sets.gate <= -bounds.lowest
    UNION ALL
    SELECT beside.due_at
    FROM bounds
    CROSS JOIN rounds
    CROSS JOIN waiting beside ON beside.gate = rounds.line AND beside.lane = rounds.lane
    WHERE rounds.gate >= bounds.lowest
      AND rounds.gate <= bounds.highest
      AND NOT abs(rounds.line) BETWEEN bounds.lowest AND bounds.highest
    LIMIT @most
) counted;

-- name: CountLine :one
-- Index: the primary key, at most so many rows of one line and lane. Since when the oldest
-- has been due; 0: none.
SELECT
    count(*) AS waiting,
    CAST(coalesce(min(counted.due_at), 0) AS INTEGER) AS oldest
FROM (
    SELECT due_at
    FROM waiting
    WHERE gate = @gate
      AND lane = @lane
    LIMIT @most
) counted;

-- name: NextTurn :one
-- Index: turns_gate, over these gates. When the first turn is due of those for which runs
-- wait; 0: none is there.
SELECT CAST(coalesce(min(turns.due_at), 0) AS INTEGER) AS due_at
FROM turns
WHERE turns.gate >= @first
  AND turns.gate <= @last
  AND (
      EXISTS (SELECT 1 FROM waiting WHERE waiting.gate = turns.gate)
      OR EXISTS (SELECT 1 FROM rounds WHERE rounds.gate = turns.gate)
  );

-- name: NextWaitingGate :one
-- Indexes: the primary key of waiting, and rounds_gate. The first gate with a run that waits
-- in its line or in its round; 0: none.
SELECT CAST(coalesce(min(found.gate), 0) AS INTEGER) AS gate
FROM (
    SELECT min(waiting.gate) AS gate
    FROM waiting
    WHERE waiting.gate >= @first
      AND waiting.gate <= @last
    UNION ALL
    SELECT min(rounds.gate)
    FROM rounds
    WHERE rounds.gate >= @first
      AND rounds.gate <= @last
) found;

-- name: ListEntries :many
-- Index: rounds_gate. The first lines of a lane that wait in the round of a gate.
SELECT *
FROM rounds
WHERE gate = @gate
  AND lane = @lane
ORDER BY since, line
LIMIT @most;

-- name: ListEntriesOf :many
-- Index: the primary key. In which rounds the lanes of a line wait.
SELECT *
FROM rounds
WHERE line = @line;

-- name: ListKeysInRound :many
-- Index: rounds_gate, then those of lanes and queues. What the lines need that wait in the
-- round of a gate, the one that has waited longest first; those of paused queues do not count.
SELECT rounds.gates
FROM rounds
CROSS JOIN lanes ON lanes.id = abs(rounds.lane)
LEFT JOIN queues ON queues.name = lanes.queue
WHERE rounds.gate = @gate
  AND rounds.line <> rounds.gate
  AND NOT coalesce(queues.paused AND (queues.cap IS NULL OR queues.stopped), 0)
ORDER BY rounds.since, rounds.line
LIMIT @most;

-- name: SaveEntry :exec
-- Idempotent: a repeat writes the same values.
INSERT INTO rounds (line, lane, gate, home, gates, since)
VALUES (@line, @lane, @gate, @home, @gates, @since)
ON CONFLICT (line, lane) DO UPDATE
SET gate = excluded.gate,
    home = excluded.home,
    gates = excluded.gates,
    since = excluded.since;

-- name: DeleteEntry :exec
-- Index: the primary key. Idempotent: a repeat finds no row.
DELETE FROM rounds
WHERE line = @line
  AND lane = @lane;

-- name: ServeHome :exec
-- Index: rounds_home. A home had its turn: all its lines wait since then. Idempotent: a
-- repeat finds no row.
UPDATE rounds
SET since = @since
WHERE gate = @gate
  AND home = @home
  AND since < @since;

-- name: ListPermits :many
-- Index: the unique one of permits, over all of a gate. By owner, the oldest first.
SELECT
    owner, until,
    CAST(sum(weight) AS INTEGER) AS places,
    CAST(max(expires_at) AS INTEGER) AS expires_at
FROM permits
WHERE gate = @gate
  AND (expires_at = 0 OR expires_at > @now)
GROUP BY owner, until
ORDER BY min(seq)
LIMIT @most;

-- name: ListPermitRuns :many
-- Index: the unique one of permits, then the key of runs.
SELECT permits.run_id,
    coalesce(runs.worker, '') AS worker,
    coalesce(runs.state, -1) AS state
FROM permits
LEFT JOIN runs ON runs.id = permits.run_id
WHERE permits.gate = @gate
  AND permits.owner = @owner
  AND permits.run_id <> x''
ORDER BY permits.seq
LIMIT @most;

-- name: ListWaiters :many
-- Index: the primary key, the first rows of one line.
SELECT waiting.due_at, waiting.run_id, lanes.queue, lanes.job, lanes.priority
FROM waiting
CROSS JOIN lanes ON lanes.id = abs(waiting.lane)
WHERE waiting.gate = @gate
  AND waiting.lane = @lane
ORDER BY waiting.due_at, waiting.run_id
LIMIT @most;

-- name: HasWaiting :one
-- Index: the primary key.
SELECT count(*)
FROM waiting
WHERE gate = @gate
  AND lane = @lane
  AND due_at = @due_at
  AND run_id = @run_id;

-- name: PruneGates :exec
-- Gates whose last start was so long ago that no limit remembers it, and that no penalty
-- holds up: a stretch of the integer key. Idempotent.
DELETE FROM gates
WHERE gate IN (
      SELECT old.gate
      FROM gates old
      JOIN limits ON limits.id = old.gate >> 43
      WHERE old.not_before < @now
        AND max(old.tat, old.last_at) + limits.period < @now
        AND (
            old.parts IS NULL
            OR coalesce(json_extract(old.parts, '$[#-1][0]'), 0) + limits.period < @now
        )
      LIMIT 1000
  );

-- name: PruneKept :exec
-- A scan of kept, of which there are few.
DELETE FROM kept
WHERE expires_at < @before;
