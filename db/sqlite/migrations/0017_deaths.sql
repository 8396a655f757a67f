-- Deaths of runs whose jobs have a job for that.
CREATE TABLE deaths (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id  BLOB    NOT NULL,
    died_at INTEGER NOT NULL,
    job     TEXT    NOT NULL,
    ran_as  TEXT    NOT NULL,
    args    BLOB,
    reason  TEXT
);
CREATE INDEX deaths_job ON deaths (job, id);

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

UPDATE meta SET version = 17;
