-- Dead runs that an operator has acknowledged, and ended runs by the time of their end.
ALTER TABLE problems ADD COLUMN acknowledged_at INTEGER;
ALTER TABLE problems ADD COLUMN acknowledged_by TEXT;
CREATE INDEX problems_ended ON problems (ended_at, run_id);

UPDATE meta SET version = 9, min_compatible = 8;
