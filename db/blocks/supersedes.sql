-- Whether a declaration counts more than the stored one: see rules.Supersedes.
-- of schedules
schedules.hash <> declared.hash
AND (
    declarer.started_at >= schedules.brought_at
    OR schedules.hash_at < now() - (@within::bigint) * interval '1 microsecond'
)
