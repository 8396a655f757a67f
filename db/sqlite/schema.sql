-- The schema of the SQLite store as a whole, for reading. The migrations are
-- its history; a test compares what they make with this file.
--
-- Times are microseconds since 1970 in UTC, on the store's clock; durations are
-- microseconds. Ids are the 16 bytes of a UUID. Flags are 0 or 1.
--
-- Invariant: a run is pending (state 0) exactly when it has its row in ready, or, if
-- it has limits, in waiting, with the same lane and due_at. One transaction changes
-- both.

-- What the file's schema is, and the oldest program that may still use it.
CREATE TABLE meta (
    only_row       INTEGER PRIMARY KEY CHECK (only_row = 1),
    version        INTEGER NOT NULL,
    min_compatible INTEGER NOT NULL
);

-- One row for each (queue, job, priority) ever used. Never deleted.
CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    queue    TEXT    NOT NULL,
    job      TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    UNIQUE (queue, job, priority)
);

-- Queues that an operator has said something about. Of a capped queue no run is claimed
-- from ready: claims move them into the line of its cap.
CREATE TABLE queues (
    name    TEXT    PRIMARY KEY NOT NULL,
    paused  INTEGER NOT NULL DEFAULT 0,            -- by an operator, or capped
    cap     INTEGER CHECK (cap IS NULL OR paused), -- the gate of its cap
    stopped INTEGER NOT NULL DEFAULT 0             -- of a capped queue: paused by an operator
) WITHOUT ROWID;

-- One row for each run. Clustered by an integer, not by the id: the rows are
-- long, and claims and settles were measured 20 % faster this way.
CREATE TABLE runs (
    seq          INTEGER PRIMARY KEY,          -- the order in which runs were stored
    id           BLOB    NOT NULL UNIQUE,
    -- of the last claim, kept after the end; cleared when it is taken from a dead worker
    claim_id     BLOB,
    fence        INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    started_at   INTEGER,                      -- of the last execution
    finished_at  INTEGER,                      -- set exactly when the state is terminal
    expires_at   INTEGER,
    timeout      INTEGER NOT NULL DEFAULT 0,   -- of one attempt; 0: none
    lane         INTEGER NOT NULL,             -- negative: isolated
    attempt      INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    -- 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled
    state        INTEGER NOT NULL DEFAULT 0,
    crash_count  INTEGER NOT NULL DEFAULT 0,
    on_crash     INTEGER NOT NULL DEFAULT 0,   -- 0 retry, 1 dead
    worker       TEXT,                         -- name of the worker that has it, or had it last
    schedule     TEXT,
    generation   INTEGER,
    occurrence   TEXT,
    tags         TEXT,                         -- JSON array; null: none
    args         BLOB    NOT NULL,             -- JSON, as it was sent
    result       BLOB,                         -- JSON
    -- it was enqueued with; unique_keys says whose the key is now
    key          TEXT,
    -- why it is to be cancelled, while it is running: it will not be pending again
    cancel       TEXT,
    trace        TEXT,                         -- of the caller, for hooks to continue
    -- JSON array of texts such as "tenant=acme"; null: it is not limited
    limits       TEXT,
    metadata     TEXT,                         -- JSON object of texts; null: none
    -- the instant of the schedule that it is for, as RFC 9557 writes it; null: none
    occurs_at    TEXT,
    -- null: no other run is concerned. 1: its end is noted, as runs wait for it; 2: it has
    -- children, which are cancelled with it; 4: it belongs to a batch, which counts it
    links        INTEGER
);
CREATE UNIQUE INDEX runs_occurrence ON runs (schedule, generation, occurrence)
    WHERE schedule IS NOT NULL;
CREATE INDEX runs_key ON runs (key, id) WHERE key IS NOT NULL;
CREATE INDEX runs_schedule ON runs (schedule, id) WHERE schedule IS NOT NULL;

-- One row for each unique key: the run that holds it. A run that has ended, and
-- whose time is over, loses the key to the next run that asks for it.
CREATE TABLE unique_keys (
    job     TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    run_id  BLOB    NOT NULL,
    -- the enqueue that stored the run, or replaced it last: a repeat of it changes nothing
    latest  BLOB    NOT NULL,
    -- held until then even when the run has ended; null: only while it has not
    held_to INTEGER,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;

-- Cancel requests for running runs, for the claim that has them; runs.cancel
-- decides, these rows only notify. Rows of claims that are gone are swept.
CREATE TABLE cancels (
    claim_id BLOB NOT NULL,
    run_id   BLOB NOT NULL,
    PRIMARY KEY (claim_id, run_id)
) WITHOUT ROWID;

-- What running handlers say of themselves; survives the attempt.
CREATE TABLE progress (
    run_id     BLOB    PRIMARY KEY NOT NULL,
    updated_at INTEGER NOT NULL,
    fraction   REAL,              -- 0 to 1
    note       TEXT,
    checkpoint BLOB               -- JSON
) WITHOUT ROWID;

-- What handlers have recorded of their runs, as long as the run. A name is recorded once; only
-- what was recorded of tries is replaced.
CREATE TABLE steps (
    run_id BLOB    NOT NULL,
    at     INTEGER NOT NULL,
    until  INTEGER,          -- of a wait; null: it has no end
    took   INTEGER,          -- by its last execution; null: not known
    tries  INTEGER NOT NULL, -- that have failed
    kind   INTEGER NOT NULL, -- 0 tried, 1 done, 2 failed, 3 sleep, 4 input
    name   TEXT    NOT NULL,
    error  TEXT,             -- of the last try that failed
    code   TEXT,             -- likewise
    value  BLOB,             -- JSON, of a result; null: none
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

-- What was sent to runs, as long as the run. The primary key decides which comes first, an
-- input or the run's giving up.
CREATE TABLE inputs (
    run_id BLOB    NOT NULL,
    at     INTEGER NOT NULL,
    size   INTEGER NOT NULL,           -- of the value, bytes
    n      INTEGER NOT NULL DEFAULT 0, -- of several with one name; 0 so far
    name   TEXT    NOT NULL,
    sender TEXT,                       -- a person; null: code
    digest TEXT,                       -- store.DigestOf; null: the run has given up
    value  BLOB,                       -- JSON; null likewise
    PRIMARY KEY (run_id, name, n)
) WITHOUT ROWID;

-- Something happened that runs may wait for: one has to be looked at. A release deletes it, or
-- puts it back for later while the run is executing. Mostly empty.
CREATE TABLE notices (
    id     INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    tries  INTEGER NOT NULL DEFAULT 0, -- how often it was put back
    -- 0 the run was sent an input, 1 it has a new condition, 2 it has ended or was deleted, or
    -- something has become of the batch with this id, 3 its parent was cancelled, 4 its batch was
    kind   INTEGER NOT NULL DEFAULT 0,
    name   TEXT    NOT NULL DEFAULT '', -- of the input
    -- of an end that many wait for: those up to here were looked at
    cursor BLOB
);
CREATE INDEX notices_due ON notices (due_at, id);

-- What runs wait for that is the end of another run, as long as the one that waits.
CREATE TABLE edges (
    waiter BLOB    NOT NULL,
    source BLOB    NOT NULL,
    wants  INTEGER NOT NULL,            -- store.Want; three more: the source is a batch
    -- 0: it is needed; else one of those with the same number is
    any_of INTEGER NOT NULL DEFAULT 0,
    met    INTEGER NOT NULL DEFAULT 0,  -- of a dependent; for ever
    -- of the step of the waiter's handler that started the source; empty: the waiter is a
    -- dependent, and was stored with this condition
    name   TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (waiter, name, any_of, source, wants)
) WITHOUT ROWID;
CREATE INDEX edges_source ON edges (source, waiter);

-- Runs that are counted together. The counts are exact: triggers change them with the runs.
CREATE TABLE batches (
    id           BLOB    NOT NULL PRIMARY KEY,
    owner        BLOB,                       -- the run whose handler has made it
    created_at   INTEGER NOT NULL,
    open_until   INTEGER,                    -- then it has failed, unless it is closed
    ends_by      INTEGER,                    -- then it is cancelled
    failed_at    INTEGER,                    -- a member was found dead or cancelled
    ended_at     INTEGER,                    -- all were found to have ended, the first time
    -- when a release decides about it; 0: something has changed; null: nothing is to be decided
    due_at       INTEGER,
    members      INTEGER NOT NULL DEFAULT 0,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    state        INTEGER NOT NULL DEFAULT 0, -- store.BatchState
    is_closed    INTEGER NOT NULL,
    is_cancelled INTEGER NOT NULL DEFAULT 0, -- it takes no more runs, and its members are cancelled
    fail_fast    INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    reason       TEXT    NOT NULL DEFAULT '',
    -- of a cancelled one: the members up to here have notices; null: all have
    cursor       BLOB
) WITHOUT ROWID;
CREATE INDEX batches_due ON batches (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX batches_owner ON batches (owner) WHERE owner IS NOT NULL;
CREATE INDEX batches_state ON batches (state, id);
CREATE INDEX batches_name ON batches (name, id);
CREATE INDEX batches_ended ON batches (state, ended_at) WHERE ended_at IS NOT NULL;

-- The runs of batches. No retention deletes a run that has a row here.
CREATE TABLE members (
    run_id BLOB NOT NULL PRIMARY KEY,
    batch  BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX members_batch ON members (batch, run_id);

-- How far the two passes of retention over the runs are, by runs.seq: the walk
-- over those old enough, and the full pass.
CREATE TABLE sweep (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    position INTEGER NOT NULL, -- of the walk: the runs up to here have been checked
    pass     INTEGER NOT NULL, -- of the pass, likewise; -1: none is under way
    began_at INTEGER NOT NULL, -- the last pass
    sweeper  BLOB,             -- workers.instance of the process that sweeps; null: none
    swept_at INTEGER NOT NULL  -- the last step; a sweeper that has gone silent is not waited for
);

-- The store's time, as the process that wrote last had it: it never goes back,
-- though the machine's clock may.
CREATE TABLE clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    latest   INTEGER NOT NULL,
    elapsed  INTEGER NOT NULL, -- nanoseconds since the machine started, then
    slow     INTEGER NOT NULL  -- the machine's clock has to catch up
);

-- The runs that wait, in the order in which they are claimed.
CREATE TABLE ready (
    lane   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    PRIMARY KEY (lane, due_at, run_id)
) WITHOUT ROWID;

-- One row for each claim that has not ended. No index on the expiry: there are few
-- leases, and a heartbeat writes only this row.
CREATE TABLE leases (
    claim_id        BLOB    PRIMARY KEY NOT NULL,
    acquired_at     INTEGER NOT NULL,
    -- negative: a part of its runs was taken back, and no renewal extends it
    expires_at      INTEGER NOT NULL,
    alone           INTEGER NOT NULL,
    worker_instance BLOB    NOT NULL,
    worker_name     TEXT    NOT NULL,
    -- 16 bytes each, in the order of the claim; written once
    run_ids         BLOB    NOT NULL
) WITHOUT ROWID;

-- One row for each ended attempt that is worth keeping, and for each crash.
CREATE TABLE attempts (
    run_id     BLOB    NOT NULL,
    fence      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    outcome    INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    error      TEXT,
    stack      TEXT,
    log        TEXT,           -- lines that the handler logged
    PRIMARY KEY (run_id, fence)
) WITHOUT ROWID;

-- One row for each run that is dead or cancelled.
CREATE TABLE problems (
    run_id   BLOB    PRIMARY KEY NOT NULL,
    ended_at INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    -- by an operator, of a dead run: it is not among the open problems; null: it was not
    acknowledged_at INTEGER,
    acknowledged_by TEXT
) WITHOUT ROWID;
CREATE INDEX problems_ended ON problems (ended_at, run_id);

-- The jobs that workers have declared.
CREATE TABLE jobs (
    name         TEXT    PRIMARY KEY NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout      INTEGER NOT NULL,
    on_crash     INTEGER NOT NULL,
    declared_at  INTEGER NOT NULL,
    retention    INTEGER NOT NULL DEFAULT 0, -- of its ended runs; 0: the worker's
    limits       TEXT,                       -- JSON: those of its runs; null: none
    -- JSON: its earlier names, and what is hidden of its runs; null: it has said nothing
    code         TEXT
) WITHOUT ROWID;

-- The schedules that workers have declared, and operators' own.
CREATE TABLE schedules (
    name         TEXT    PRIMARY KEY NOT NULL,
    -- of the rule, the plan and the run as the code declares them
    hash         TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    spec         TEXT    NOT NULL,             -- the rule and the plan, as JSON
    job          TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    args         BLOB    NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout      INTEGER NOT NULL,
    on_crash     INTEGER NOT NULL,
    tags         TEXT,
    -- the next occurrence; null: not planned yet, or never again
    next_at      INTEGER,
    -- when to evaluate it next; null: never again, or paused
    look_at      INTEGER,
    -- not 0: next_at waits for an earlier run; the last pause between two evaluations
    waiting      INTEGER NOT NULL DEFAULT 0,
    -- ids of its runs, 16 bytes each, that had not ended when it was last evaluated
    unfinished   BLOB    NOT NULL DEFAULT x'',
    -- why the rule could not be evaluated when it was last evaluated
    fault        TEXT,
    paused       INTEGER NOT NULL DEFAULT 0,
    paused_by    TEXT,
    edited       INTEGER NOT NULL DEFAULT 0,   -- an operator has changed it
    -- by a worker, whatever its hash; null: an operator's own
    declared_at  INTEGER,
    hash_at      INTEGER NOT NULL,             -- when a worker last declared this hash
    brought_at   INTEGER NOT NULL              -- when the worker that brought this hash had started
);
CREATE INDEX schedules_look ON schedules (look_at) WHERE look_at IS NOT NULL;

-- Occurrences that did not become runs; the latest of each schedule.
CREATE TABLE skips (
    seq      INTEGER PRIMARY KEY,
    schedule TEXT    NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    reason   TEXT    NOT NULL
);
CREATE INDEX skips_schedule ON skips (schedule, seq);

-- What operators, and policies in their place, have changed.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    -- of the thing changed: run, queue, schedule, lock; bulk: all runs of a filter
    kind    TEXT    NOT NULL,
    subject TEXT    NOT NULL, -- its name; of a run or a bulk change the id
    action  TEXT    NOT NULL,
    detail  TEXT,   -- JSON: what the action's word does not say
    runs    INTEGER -- of a bulk change: how many runs it has changed
);
CREATE INDEX audit_subject ON audit (kind, subject, id);

-- The worker processes that have declared themselves; for people, never for decisions.
CREATE TABLE workers (
    instance    BLOB    PRIMARY KEY NOT NULL,
    name        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    declared_at INTEGER NOT NULL,
    reported_at INTEGER,                     -- null: never
    reports     INTEGER NOT NULL DEFAULT 0,  -- the number of the last report
    -- JSON, what it says of itself; null: it has not reported, or has stopped
    report      TEXT
) WITHOUT ROWID;

-- What workers did in one minute (span 1) or quarter of an hour (span 15), of one job on
-- one queue; without names of all. Each report is added to both spans.
CREATE TABLE stats (
    span  INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    job   TEXT    NOT NULL,
    at    INTEGER NOT NULL, -- the beginning
    tally TEXT    NOT NULL, -- JSON: numbers, and attempts by classes of times
    PRIMARY KEY (span, queue, job, at)
) WITHOUT ROWID;

-- One row for each slot of a named lock that was ever granted. The row keeps the
-- fence; one that has been free, or expired, for a week is deleted when a new
-- name comes: a fence that begins again begins at the store's time. A row whose name is
-- empty is no lock: it refuses a claim that was given back before it came, for an hour.
CREATE TABLE locks (
    name        TEXT    NOT NULL,
    slot        INTEGER NOT NULL,
    fence       INTEGER NOT NULL,  -- of the last grant; rises with each, over all slots of the name
    claim_id    BLOB,              -- null: free
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,  -- of the last grant or renewal; when it was released
    owner       TEXT    NOT NULL,  -- for people, never for decisions
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;
CREATE UNIQUE INDEX locks_claim ON locks (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX locks_expiry ON locks (expires_at);

-- One row per name and process that has waited for it for a while. A hint: a
-- release counts one of them up, and operators see who waits.
CREATE TABLE lock_waits (
    name   TEXT    NOT NULL,
    waiter BLOB    NOT NULL,             -- the Locker, chosen when it starts
    since  INTEGER NOT NULL,
    until  INTEGER NOT NULL,             -- it lapses then, unless it is noted again
    calls  INTEGER NOT NULL,             -- that wait
    freed  INTEGER NOT NULL DEFAULT 0,   -- how often it was notified of a release
    owner  TEXT    NOT NULL,             -- for people
    PRIMARY KEY (name, waiter)
) WITHOUT ROWID;

-- The limits that workers have declared, and operators' own. Never deleted.
CREATE TABLE limits (
    id          INTEGER PRIMARY KEY,     -- part of the number of each of its gates
    name        TEXT    NOT NULL UNIQUE, -- in lower case
    -- 1 semaphore, 2 fixed window, 3 sliding window, 4 token bucket, 5 dynamic window
    kind        INTEGER NOT NULL,
    most        INTEGER NOT NULL,        -- places, or starts in a period
    period      INTEGER NOT NULL,
    burst       INTEGER NOT NULL,
    buckets     INTEGER NOT NULL,
    least_share INTEGER NOT NULL,        -- of one key of a dynamic window
    most_share  INTEGER NOT NULL,
    action      INTEGER NOT NULL,        -- what happens to runs when it is full
    retry_after INTEGER NOT NULL,
    -- 0 active, 1 draining, 2 off, 3 removed
    state       INTEGER NOT NULL DEFAULT 0,
    hash        TEXT    NOT NULL,        -- of what the code declares; empty: an operator's own
    edited      INTEGER NOT NULL,        -- an operator's version is in effect
    -- by a worker, whatever its hash; null: never
    declared_at INTEGER,
    hash_at     INTEGER NOT NULL,        -- when a worker last declared this hash
    brought_at  INTEGER NOT NULL,        -- when the worker that brought this hash had started
    secret      BLOB                     -- part of the numbers of its gates; null: none
);

-- The lanes in which runs of a limit have ever waited; negative: isolated ones.
CREATE TABLE limit_lanes (
    limit_id INTEGER NOT NULL,
    lane     INTEGER NOT NULL,
    PRIMARY KEY (limit_id, lane)
) WITHOUT ROWID;

-- What a key of a limit has admitted, of a limit of starts, and penalties. A gate is
-- the limit's number times 2^43 and 43 bits of a digest of the key.
CREATE TABLE gates (
    gate       INTEGER PRIMARY KEY,
    tat        INTEGER NOT NULL, -- of a token bucket: the theoretical arrival time
    parts      TEXT,             -- of a window: JSON array of instants and counts
    since      INTEGER NOT NULL, -- of a key of a dynamic window: its first start
    last_at    INTEGER NOT NULL, -- likewise: its last start
    not_before INTEGER NOT NULL  -- a penalty; 0: none
);

-- The limited runs that wait, each in the line of one of its gates and of its lane.
CREATE TABLE waiting (
    gate   INTEGER NOT NULL, -- 0: it has all its permits; negative: that of a set of gates
    lane   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    PRIMARY KEY (gate, lane, due_at, run_id)
) WITHOUT ROWID;

-- Lines whose next run a gate has refused: they wait in its round until it has room. A
-- line is that of a gate in waiting; a negative one that of runs with the same gates.
CREATE TABLE rounds (
    line  INTEGER NOT NULL,
    lane  INTEGER NOT NULL,
    gate  INTEGER NOT NULL,
    home  INTEGER NOT NULL, -- the gate of the key whose share the line counts for
    gates TEXT    NOT NULL, -- JSON array: what each run of the line needs
    since INTEGER NOT NULL, -- when the home had its last start here, or came
    PRIMARY KEY (line, lane)
) WITHOUT ROWID;
CREATE INDEX rounds_gate ON rounds (gate, lane, since, line);
CREATE INDEX rounds_home ON rounds (gate, home);

-- A gate may have room from an instant on. A line is a lane, or 2^30 and the limit.
CREATE TABLE turns (
    line   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    gate   INTEGER NOT NULL,
    PRIMARY KEY (line, due_at, gate)
) WITHOUT ROWID;
CREATE INDEX turns_gate ON turns (gate, line, due_at);

-- Places of a gate that are taken: they count while the row exists and has not
-- expired.
CREATE TABLE permits (
    seq        INTEGER PRIMARY KEY,
    gate       INTEGER NOT NULL,
    owner      BLOB    NOT NULL, -- the claim, the run, or the digest of a named owner
    run_id     BLOB    NOT NULL, -- empty: of a named owner
    weight     INTEGER NOT NULL,
    -- the letter of what ends it: s settled, f finished, k finished or revived, x expires
    until      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, -- 0: never
    UNIQUE (gate, owner, run_id)
);
CREATE INDEX permits_run ON permits (run_id);

-- Places that are kept for a lane whose workers have not come yet.
CREATE TABLE kept (
    gate       INTEGER NOT NULL,
    lane       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (gate, lane)
) WITHOUT ROWID;

-- Starts that did not happen, for the next admission to give back.
CREATE TABLE refunds (
    seq        INTEGER PRIMARY KEY,
    gate       INTEGER NOT NULL,
    weight     INTEGER NOT NULL,
    charged_at INTEGER NOT NULL
);
CREATE INDEX refunds_gate ON refunds (gate);

-- The end of a run that others wait for, by whatever statement, leaves a notice. Triggers, so that
-- no statement can be without it.
CREATE TRIGGER runs_end_noted AFTER UPDATE OF state ON runs
WHEN new.links IS NOT NULL AND new.state >= 2
BEGIN
    INSERT INTO notices (due_at, run_id, kind)
    SELECT 0, new.id, 2
    WHERE new.links & 1 <> 0;
    INSERT INTO notices (due_at, run_id, kind)
    SELECT 0, edges.source, 3
    FROM edges
    WHERE edges.waiter = new.id AND edges.name <> '' AND new.links & 2 <> 0 AND new.state = 5;
END;

CREATE TRIGGER runs_deletion_noted AFTER DELETE ON runs
WHEN old.links IS NOT NULL
BEGIN
    INSERT INTO notices (due_at, run_id, kind)
    SELECT 0, old.id, 2
    WHERE old.links & 1 <> 0;
    INSERT INTO notices (due_at, run_id, kind)
    SELECT 0, edges.source, 3
    FROM edges
    WHERE edges.waiter = old.id AND edges.name <> '' AND old.links & 2 <> 0 AND old.state < 2;
END;

-- A member that ends, or is retried, is counted by its batch, which is due when something may have
-- become of it. One that is retried after its batch was cancelled is cancelled, too.
CREATE TRIGGER runs_member_counted AFTER UPDATE OF state ON runs
WHEN new.links & 4 <> 0 AND new.state <> old.state AND (new.state >= 2 OR old.state >= 2)
BEGIN
    UPDATE batches
    SET succeeded = succeeded + (new.state = 2) - (old.state = 2),
        dead = dead + (new.state = 4) - (old.state = 4),
        cancelled = cancelled + (new.state = 5) - (old.state = 5),
        due_at = CASE
            WHEN old.state >= 2 OR new.state > 2 AND failed_at IS NULL THEN 0
            WHEN is_closed <> 0 AND succeeded + dead + cancelled + 1 >= members THEN 0
            ELSE due_at
        END
    WHERE id = (SELECT members.batch FROM members WHERE members.run_id = new.id);
    INSERT INTO notices (due_at, run_id, kind)
    SELECT 0, new.id, 4
    FROM members
    JOIN batches ON batches.id = members.batch
    WHERE members.run_id = new.id
      AND new.state < 2
      AND batches.is_cancelled <> 0
      AND batches.ended_at IS NULL;
END;

-- A member that is deleted never belonged to its batch.
CREATE TRIGGER runs_member_deleted AFTER DELETE ON runs
WHEN old.links & 4 <> 0
BEGIN
    UPDATE batches
    SET members = members - 1,
        succeeded = succeeded - (old.state = 2),
        dead = dead - (old.state = 4),
        cancelled = cancelled - (old.state = 5),
        due_at = 0
    WHERE id = (SELECT members.batch FROM members WHERE members.run_id = old.id);
    DELETE FROM members
    WHERE run_id = old.id;
END;

-- A run has died whose job has a job for that: a run of it is to be stored. As long as until then.
CREATE TABLE deaths (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id  BLOB    NOT NULL,
    died_at INTEGER NOT NULL,
    job     TEXT    NOT NULL, -- as it is declared
    ran_as  TEXT    NOT NULL, -- the job's name that the run has
    args    BLOB,
    reason  TEXT
);
CREATE INDEX deaths_job ON deaths (job, id);

-- Every statement that makes a run dead reports the problem then.
CREATE TRIGGER problems_death_noted AFTER INSERT ON problems
BEGIN
    INSERT INTO deaths (run_id, died_at, job, ran_as, args, reason)
    SELECT runs.id, new.ended_at, jobs.name, lanes.job, runs.args, new.reason
    FROM runs
    JOIN lanes ON lanes.id = abs(runs.lane)
    JOIN jobs ON jobs.code IS NOT NULL
    JOIN json_each(CASE WHEN json_valid(jobs.code) THEN jobs.code ELSE '[]' END) AS version
    WHERE runs.id = new.run_id
      AND runs.state = 4
      AND json_extract(version.value, '$.code.on_dead') NOT IN (jobs.name, lanes.job)
      AND (
        jobs.name = lanes.job
        OR EXISTS (
            SELECT 1
            FROM json_each(version.value, '$.code.aliases') AS alias
            WHERE alias.value = lanes.job
        )
      )
    ORDER BY jobs.name = lanes.job DESC
    LIMIT 1;
END;
