-- What the enqueuer notes about a run for people and for filters, and runs by their
-- schedules.
ALTER TABLE runs ADD COLUMN metadata TEXT;
CREATE INDEX runs_schedule ON runs (schedule, id) WHERE schedule IS NOT NULL;

UPDATE meta SET version = 10;
