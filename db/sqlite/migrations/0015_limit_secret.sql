-- Part of the numbers of a limit's gates, so that a tenant that chooses its own key cannot find
-- one that shares a gate with another's. Limits that exist have none.
ALTER TABLE limits ADD COLUMN secret BLOB;

UPDATE meta SET version = 15;
