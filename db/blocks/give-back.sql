-- Gives back the permits of named owners, for runs that have succeeded and say so.
-- of over
DELETE FROM durable.permits
USING (
    SELECT
        split_part(over.gives[given.place], ':', 1)::bigint AS gate,
        split_part(over.gives[given.place], ':', 2)::uuid AS owner
    FROM over
    CROSS JOIN generate_subscripts(over.gives, 1) AS given (place)
    WHERE over.state = durable.succeeded()
) back
WHERE permits.gate = back.gate
  AND permits.owner = back.owner
  AND permits.until = durable.until_expires()
RETURNING permits.gate
