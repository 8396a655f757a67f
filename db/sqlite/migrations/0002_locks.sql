CREATE TABLE locks (
    name        TEXT    NOT NULL,
    slot        INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    claim_id    BLOB,
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;
CREATE UNIQUE INDEX locks_claim ON locks (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX locks_expiry ON locks (expires_at);

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    detail  TEXT
);
CREATE INDEX audit_subject ON audit (kind, subject, id);

UPDATE meta SET version = 2, min_compatible = 1;
