-- name: HasMeta
SELECT count(*)
FROM sqlite_master
WHERE type = 'table'
  AND name = 'meta';

-- name: FindSchema
SELECT version, min_compatible
FROM meta;
