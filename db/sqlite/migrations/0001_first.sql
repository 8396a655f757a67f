-- The first schema. See schema.sql for what each table is for.
CREATE TABLE meta (
    only_row       INTEGER PRIMARY KEY CHECK (only_row = 1),
    version        INTEGER NOT NULL,
    min_compatible INTEGER NOT NULL
);

CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    queue    TEXT    NOT NULL,
    job      TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    UNIQUE (queue, job, priority)
);

CREATE TABLE queues (
    name   TEXT    PRIMARY KEY NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE runs (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    claim_id     BLOB,
    fence        INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    started_at   INTEGER,
    finished_at  INTEGER,
    expires_at   INTEGER,
    timeout      INTEGER NOT NULL DEFAULT 0,
    lane         INTEGER NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    state        INTEGER NOT NULL DEFAULT 0,
    crash_count  INTEGER NOT NULL DEFAULT 0,
    on_crash     INTEGER NOT NULL DEFAULT 0,
    worker       TEXT,
    schedule     TEXT,
    generation   INTEGER,
    occurrence   TEXT,
    tags         TEXT,
    args         BLOB    NOT NULL,
    result       BLOB
);
CREATE UNIQUE INDEX runs_occurrence ON runs (schedule, generation, occurrence)
    WHERE schedule IS NOT NULL;

CREATE TABLE ready (
    lane   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    PRIMARY KEY (lane, due_at, run_id)
) WITHOUT ROWID;

CREATE TABLE leases (
    claim_id        BLOB    PRIMARY KEY NOT NULL,
    acquired_at     INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    alone           INTEGER NOT NULL,
    worker_instance BLOB    NOT NULL,
    worker_name     TEXT    NOT NULL,
    run_ids         BLOB    NOT NULL
) WITHOUT ROWID;

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
    PRIMARY KEY (run_id, fence)
) WITHOUT ROWID;

CREATE TABLE problems (
    run_id   BLOB    PRIMARY KEY NOT NULL,
    ended_at INTEGER NOT NULL,
    reason   TEXT    NOT NULL
) WITHOUT ROWID;

CREATE TABLE jobs (
    name         TEXT    PRIMARY KEY NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout      INTEGER NOT NULL,
    on_crash     INTEGER NOT NULL,
    declared_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE schedules (
    name         TEXT    PRIMARY KEY NOT NULL,
    hash         TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    cron         TEXT    NOT NULL,
    zone         TEXT    NOT NULL,
    every        INTEGER NOT NULL,
    job          TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    args         BLOB    NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout      INTEGER NOT NULL,
    on_crash     INTEGER NOT NULL,
    tags         TEXT,
    next_at      INTEGER,
    look_at      INTEGER,
    fault        TEXT,
    declared_at  INTEGER NOT NULL
);
CREATE INDEX schedules_look ON schedules (look_at) WHERE look_at IS NOT NULL;

CREATE TABLE workers (
    instance    BLOB    PRIMARY KEY NOT NULL,
    name        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    declared_at INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (only_row, version, min_compatible) VALUES (1, 1, 1);
