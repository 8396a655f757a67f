-- How far the store's time has come, so that processes agree on it when the
-- machine's clock is set back.
CREATE TABLE clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    latest   INTEGER NOT NULL,
    elapsed  INTEGER NOT NULL,
    slow     INTEGER NOT NULL
);
INSERT INTO clock (only_row, latest, elapsed, slow) VALUES (1, 0, 0, 0);

UPDATE meta SET version = 5, min_compatible = 3;
