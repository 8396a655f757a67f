-- Limits on how many runs execute concurrently, and on how many start in a time.
-- A program of before would put a limited run that it reclaims into ready.
ALTER TABLE runs ADD COLUMN limits TEXT;
ALTER TABLE jobs ADD COLUMN limits TEXT;

CREATE TABLE limits (
    id          INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    kind        INTEGER NOT NULL,
    most        INTEGER NOT NULL,
    period      INTEGER NOT NULL,
    burst       INTEGER NOT NULL,
    buckets     INTEGER NOT NULL,
    least_share INTEGER NOT NULL,
    most_share  INTEGER NOT NULL,
    action      INTEGER NOT NULL,
    retry_after INTEGER NOT NULL,
    state       INTEGER NOT NULL DEFAULT 0,
    hash        TEXT    NOT NULL,
    edited      INTEGER NOT NULL,
    declared_at INTEGER,
    hash_at     INTEGER NOT NULL,
    brought_at  INTEGER NOT NULL
);

CREATE TABLE limit_lanes (
    limit_id INTEGER NOT NULL,
    lane     INTEGER NOT NULL,
    PRIMARY KEY (limit_id, lane)
) WITHOUT ROWID;

CREATE TABLE gates (
    gate       INTEGER PRIMARY KEY,
    tat        INTEGER NOT NULL,
    parts      TEXT,
    since      INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    not_before INTEGER NOT NULL
);

CREATE TABLE waiting (
    gate   INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    run_id BLOB    NOT NULL,
    PRIMARY KEY (gate, lane, due_at, run_id)
) WITHOUT ROWID;

CREATE TABLE turns (
    line   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    gate   INTEGER NOT NULL,
    PRIMARY KEY (line, due_at, gate)
) WITHOUT ROWID;
CREATE INDEX turns_gate ON turns (gate, line, due_at);

CREATE TABLE permits (
    seq        INTEGER PRIMARY KEY,
    gate       INTEGER NOT NULL,
    owner      BLOB    NOT NULL,
    run_id     BLOB    NOT NULL,
    weight     INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (gate, owner, run_id)
);
CREATE INDEX permits_run ON permits (run_id);

CREATE TABLE kept (
    gate       INTEGER NOT NULL,
    lane       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (gate, lane)
) WITHOUT ROWID;

CREATE TABLE refunds (
    seq        INTEGER PRIMARY KEY,
    gate       INTEGER NOT NULL,
    weight     INTEGER NOT NULL,
    charged_at INTEGER NOT NULL
);
CREATE INDEX refunds_gate ON refunds (gate);

UPDATE meta SET version = 8, min_compatible = 8;
