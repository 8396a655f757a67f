-- What the code of a job says to programs that show its runs: its earlier names, and what
-- is hidden.
ALTER TABLE jobs ADD COLUMN code TEXT;

UPDATE meta SET version = 12;
