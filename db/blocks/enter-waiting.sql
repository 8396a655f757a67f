-- The row of waiting that each limited run of a CTE gets: in the line of its first gate of which it
-- has no permit yet; with the permits of all of them, in the line of none.
-- of limited
INSERT INTO durable.waiting (gate, lane, due_at, run_id, more)
SELECT
    durable.waits_at(limited.id, limited.gates, limited.strict),
    limited.lane,
    limited.due_at,
    limited.id,
    durable.is_more(limited.gates, limited.limits)
FROM limited
