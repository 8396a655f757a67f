-- The instant of its schedule that a run is for, so that handlers have it.
ALTER TABLE runs ADD COLUMN occurs_at TEXT;

UPDATE meta SET version = 14;
