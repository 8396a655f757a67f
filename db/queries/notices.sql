-- name: CountNotices :many
-- The notices of inputs, counted up to so many, and when the first of them is to be looked at.
-- Index: notices_order, its beginning. Locks: none.
SELECT count(*) AS notices, min(first.due_at)::timestamptz AS oldest
FROM (
    SELECT due_at
    FROM durable.notices
    ORDER BY due_at, id
    LIMIT @most::int
) first
HAVING count(*) > 0;
