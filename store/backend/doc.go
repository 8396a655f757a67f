// Package backend opens the store that a connection string names. It is the
// one place that knows every engine.
//
//	postgres://user@host/db   postgresql://…   host=… dbname=…   PostgreSQL
//	sqlite:durable.db         sqlite:///var/lib/app/durable.db    a SQLite file
//	memory:                                                       this process only
//
// A connection string may hold a password: no error of this package repeats
// it, and [Redact] is for those who want to show where they are connected.
package backend
