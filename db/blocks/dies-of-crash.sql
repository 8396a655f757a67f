-- Whether a run ends dead with this crash: its policy says so, or it has crashed as many workers
-- as it may, the last one while it was executed alone.
on_crash <> durable.crash_retry()
OR crash_count + 1 >= @max_crashes::int
AND (SELECT expired.alone FROM expired WHERE expired.claim_id = runs.claim_id)
