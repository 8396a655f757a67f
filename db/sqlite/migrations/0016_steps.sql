-- What handlers record of themselves, step by step, what runs are sent, and what runs wait for. A
-- program of before would leave these behind when it deletes a run.
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
    kind   INTEGER NOT NULL DEFAULT 0,
    name   TEXT    NOT NULL DEFAULT '',
    cursor BLOB
);
CREATE INDEX notices_due ON notices (due_at, id);

CREATE TABLE edges (
    waiter BLOB    NOT NULL,
    source BLOB    NOT NULL,
    wants  INTEGER NOT NULL,
    any_of INTEGER NOT NULL DEFAULT 0,
    met    INTEGER NOT NULL DEFAULT 0,
    name   TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (waiter, name, any_of, source, wants)
) WITHOUT ROWID;
CREATE INDEX edges_source ON edges (source, waiter);

ALTER TABLE runs ADD COLUMN links INTEGER;

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

UPDATE meta SET version = 16, min_compatible = 16;
