-- Runs that are counted together. A program of before would never decide about a batch, would
-- take its end for one that has come, and would take runs that it deletes from the counts.
CREATE TABLE batches (
    id           BLOB    NOT NULL PRIMARY KEY,
    owner        BLOB,
    created_at   INTEGER NOT NULL,
    open_until   INTEGER,
    ends_by      INTEGER,
    failed_at    INTEGER,
    ended_at     INTEGER,
    due_at       INTEGER,
    members      INTEGER NOT NULL DEFAULT 0,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    state        INTEGER NOT NULL DEFAULT 0,
    is_closed    INTEGER NOT NULL,
    is_cancelled INTEGER NOT NULL DEFAULT 0,
    fail_fast    INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    reason       TEXT    NOT NULL DEFAULT '',
    cursor       BLOB
) WITHOUT ROWID;
CREATE INDEX batches_due ON batches (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX batches_owner ON batches (owner) WHERE owner IS NOT NULL;
CREATE INDEX batches_state ON batches (state, id);
CREATE INDEX batches_name ON batches (name, id);
CREATE INDEX batches_ended ON batches (state, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE members (
    run_id BLOB NOT NULL PRIMARY KEY,
    batch  BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX members_batch ON members (batch, run_id);

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

UPDATE meta SET version = 18, min_compatible = 18;
