// Package sqlitedb holds the SQL of the SQLite store: the schema, its
// migrations, and the statements that sqlc cannot read.
package sqlitedb

import "embed"

// Files are schema.sql, migrations/*.sql and statements/*.sql.
//
//go:embed schema.sql migrations/*.sql statements/*.sql
var Files embed.FS
