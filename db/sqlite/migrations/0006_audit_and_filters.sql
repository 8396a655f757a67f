-- One row of the audit for a change to all runs of a filter, and runs by their keys.
ALTER TABLE audit ADD COLUMN runs INTEGER;
CREATE INDEX runs_key ON runs (key, id) WHERE key IS NOT NULL;

UPDATE meta SET version = 6, min_compatible = 3;
