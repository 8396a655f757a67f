// Package pgtest starts throw-away PostgreSQL servers for tests.
//
// DURABLE_TEST_DATABASE_URL names a server to use instead, with a user that may
// create databases. A server that cannot be found is a failed test with the
// line to type, never a skipped one.
package pgtest
