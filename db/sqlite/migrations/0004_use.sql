-- Unique keys, cancel requests, progress, log lines, retention, who waits for locks.
ALTER TABLE runs ADD COLUMN key TEXT;
ALTER TABLE runs ADD COLUMN cancel TEXT;
ALTER TABLE runs ADD COLUMN trace TEXT;
CREATE TABLE unique_keys (
    job     TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    run_id  BLOB    NOT NULL,
    latest  BLOB    NOT NULL,
    held_to INTEGER,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE cancels (
    claim_id BLOB NOT NULL,
    run_id   BLOB NOT NULL,
    PRIMARY KEY (claim_id, run_id)
) WITHOUT ROWID;
CREATE TABLE progress (
    run_id     BLOB    PRIMARY KEY NOT NULL,
    updated_at INTEGER NOT NULL,
    fraction   REAL,
    note       TEXT,
    checkpoint BLOB
) WITHOUT ROWID;
CREATE TABLE sweep (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    position INTEGER NOT NULL,
    pass     INTEGER NOT NULL,
    began_at INTEGER NOT NULL,
    sweeper  BLOB,
    swept_at INTEGER NOT NULL
);
INSERT INTO sweep (only_row, position, pass, began_at, swept_at) VALUES (1, 0, -1, 0, 0);
ALTER TABLE attempts RENAME TO attempts_before;
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
    log        TEXT,
    PRIMARY KEY (run_id, fence)
) WITHOUT ROWID;
INSERT INTO attempts (run_id, fence, number, outcome, worker, started_at, ended_at, error, stack)
SELECT run_id, fence, number, outcome, worker, started_at, ended_at, error, stack
FROM attempts_before;
DROP TABLE attempts_before;
ALTER TABLE jobs ADD COLUMN retention INTEGER NOT NULL DEFAULT 0;
CREATE TABLE lock_waits (
    name   TEXT    NOT NULL,
    waiter BLOB    NOT NULL,
    since  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    calls  INTEGER NOT NULL,
    freed  INTEGER NOT NULL DEFAULT 0,
    owner  TEXT    NOT NULL,
    PRIMARY KEY (name, waiter)
) WITHOUT ROWID;

UPDATE meta SET version = 4, min_compatible = 3;
