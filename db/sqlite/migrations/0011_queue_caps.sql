-- Caps of queues. To programs of before, a capped queue is paused: they leave it to those
-- that know caps, and cannot resume it.
ALTER TABLE queues ADD COLUMN cap INTEGER CHECK (cap IS NULL OR paused);
ALTER TABLE queues ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0;

UPDATE meta SET version = 11;
