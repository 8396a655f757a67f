-- Schedules with policies: the rule and the plan as one text, what an operator
-- did, runs that have not ended, and what was skipped.
ALTER TABLE schedules RENAME TO schedules_before;
DROP INDEX schedules_look;
CREATE TABLE schedules (
    name         TEXT    PRIMARY KEY NOT NULL,
    hash         TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    spec         TEXT    NOT NULL,
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
    waiting      INTEGER NOT NULL DEFAULT 0,
    unfinished   BLOB    NOT NULL DEFAULT x'',
    fault        TEXT,
    paused       INTEGER NOT NULL DEFAULT 0,
    paused_by    TEXT,
    edited       INTEGER NOT NULL DEFAULT 0,
    declared_at  INTEGER,
    hash_at      INTEGER NOT NULL,
    brought_at   INTEGER NOT NULL
);
CREATE INDEX schedules_look ON schedules (look_at) WHERE look_at IS NOT NULL;
INSERT INTO schedules (
    name, hash, generation, spec, job, queue, priority, args, max_attempts, timeout, on_crash,
    tags, next_at, look_at, fault, declared_at, hash_at, brought_at
)
SELECT
    name, hash, generation,
    json_object(
        'plan', json('{}'),
        'rule', CASE
            WHEN every > 0 THEN json_object('every', every || 'us')
            ELSE json_object('cron', cron, 'zone', zone)
        END
    ),
    job, queue, priority, args, max_attempts, timeout, on_crash, tags, next_at, look_at, fault,
    declared_at, declared_at, 0
FROM schedules_before;
DROP TABLE schedules_before;
CREATE TABLE skips (
    seq      INTEGER PRIMARY KEY,
    schedule TEXT    NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    reason   TEXT    NOT NULL
);
CREATE INDEX skips_schedule ON skips (schedule, seq);

UPDATE meta SET version = 3, min_compatible = 3;
