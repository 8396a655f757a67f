-- What workers report of themselves, and what they did, by the minute and the quarter
-- of an hour.
ALTER TABLE workers ADD COLUMN reported_at INTEGER;
ALTER TABLE workers ADD COLUMN reports INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN report TEXT;
CREATE TABLE stats (
    span  INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    job   TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    tally TEXT    NOT NULL,
    PRIMARY KEY (span, queue, job, at)
) WITHOUT ROWID;

UPDATE meta SET version = 7, min_compatible = 3;
