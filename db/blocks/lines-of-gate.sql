-- Lines of other gates that wait in the round of this one, or that have it for their home.
SELECT rounds.line, rounds.lane, rounds.since, rounds.home
FROM durable.rounds
WHERE rounds.line <> @gate
  AND (rounds.gate = @gate OR rounds.home = @gate)
