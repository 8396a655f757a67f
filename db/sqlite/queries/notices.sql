-- name: CountNotices :one
-- The notices of inputs, counted up to so many, and when the first of them is to be looked at.
-- Index: notices_due, its beginning.
SELECT
    count(*) AS notices,
    CAST(coalesce(min(first.due_at), 0) AS INTEGER) AS oldest
FROM (
    SELECT due_at
    FROM notices
    ORDER BY due_at, id
    LIMIT @most
) first;
