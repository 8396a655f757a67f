-- Lines of runs that wait in the round of a gate: keys take turns below shared limits.
-- A program of before would drop the turn of a gate for which only such lines wait.
CREATE TABLE rounds (
    line  INTEGER NOT NULL,
    lane  INTEGER NOT NULL,
    gate  INTEGER NOT NULL,
    home  INTEGER NOT NULL,
    gates TEXT    NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (line, lane)
) WITHOUT ROWID;
CREATE INDEX rounds_gate ON rounds (gate, lane, since, line);
CREATE INDEX rounds_home ON rounds (gate, home);

UPDATE meta SET version = 13, min_compatible = 13;
