-- The gates that a reading statement is about: those given, or those that the statement before it
-- has left in admission.gates.
SELECT unnest(
    coalesce(
        sqlc.narg('gates')::bigint[],
        nullif(pg_catalog.current_setting('admission.gates', true), '')::bigint[]
    )
) AS gate
