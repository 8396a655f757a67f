-- What becomes of a run that does not die when it is taken from its worker: see rules.Released.
WHEN cancel IS NOT NULL THEN durable.cancelled()
ELSE durable.pending()
