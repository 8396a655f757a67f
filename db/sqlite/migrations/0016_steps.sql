-- What handlers record of themselves, step by step, and what runs are sent. A program of before
-- would leave both behind when it deletes a run.
CREATE TABLE steps (
    run_id BLOB    NOT NULL,
    at     INTEGER NOT NULL,
    until  INTEGER,
    took   INTEGER,
    tries  INTEGER NOT NULL,
    kind   INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    error  TEXT,
    code   TEXT,
    value  BLOB,
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

CREATE TABLE inputs (
    run_id BLOB    NOT NULL,
    at     INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    n      INTEGER NOT NULL DEFAULT 0,
    name   TEXT    NOT NULL,
    sender TEXT,
    digest TEXT,
    value  BLOB,
    PRIMARY KEY (run_id, name, n)
) WITHOUT ROWID;

CREATE TABLE notices (
    id     INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    tries  INTEGER NOT NULL DEFAULT 0,
    name   TEXT    NOT NULL
);
CREATE INDEX notices_due ON notices (due_at, id);

UPDATE meta SET version = 16, min_compatible = 16;
