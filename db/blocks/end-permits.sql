-- Ends the permits that outlast a claim, of runs that have ended. A dead run keeps those that last
-- until it is revived.
-- of refused
DELETE FROM durable.permits
USING refused
WHERE refused.strict IS NOT NULL
  AND permits.gate = ANY (refused.strict)
  AND permits.owner = refused.id
  AND (permits.until = durable.until_finished() OR refused.state <> durable.dead())
RETURNING permits.gate
