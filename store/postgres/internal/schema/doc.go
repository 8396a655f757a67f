// Package schema is the history of the tables that the store on PostgreSQL uses, and the check
// that a database has a version which this program can serve.
//
// Each step of the history is a file of db/migrations, which says the oldest version of the
// program that can serve the schema after it. Usable reads the version before the first call of
// a store and again every twenty seconds, so that a program which is too old stops before it
// writes what the others cannot read. Migrate applies what is missing, under an advisory lock
// and with a bound on how long it keeps others waiting for a table.
package schema
