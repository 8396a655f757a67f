// Package db holds the SQL of the stores: the readable schema, the queries that
// sqlc compiles, and the migrations that programs apply.
package db

import "embed"

// Migrations holds migrations/NNNN_name.sql, in the order of their numbers.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Schema is the whole PostgreSQL schema after all migrations.
//
//go:embed schema.sql
var Schema string

// Words declares the words that the statements in queries use; internal/sqlwords replaces them.
//
//go:embed words.sql
var Words string
