-- What the numbers of a limit's gates are made with, so that nobody who chooses keys finds one
-- that shares a gate with another. Limits that exist have none.
ALTER TABLE limits ADD COLUMN secret BLOB;

UPDATE meta SET version = 15;
