-- The store's time, as the process that wrote last had it.

-- name: FindClock :one
SELECT latest, elapsed, slow
FROM clock;

-- name: SaveClock :exec
-- In a transaction that writes anyway, once a second. The caller has read the row in the
-- same transaction and gives no earlier time, unless that was a day off. Idempotent: a
-- repeat changes nothing more.
UPDATE clock
SET latest = @latest,
    elapsed = @elapsed,
    slow = @slow;
