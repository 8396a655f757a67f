// Package conn is how the store on PostgreSQL reaches its database.
//
// A DB has four pools. General serves callers: it enqueues, and it changes what operators say.
// Engine claims and settles; a handler that keeps every connection of General busy cannot keep
// a claim waiting. Beats renews leases and does nothing else, because a lease that is not
// renewed in time is lost; it keeps one connection open for as long as a worker runs. Reading
// answers operators, read-only and for a bounded time. With Share, General is the caller's
// pool, and whatever must not wait for it uses Engine instead: see DB.Aloof.
//
// Statements are written for the schema "durable" and with the words of db/words.sql. Namespace
// spells the words out and names the schema, once for each statement. Statements are sent in
// batches, one round trip each. A batch begins with a guard, which bounds how long it
// waits for locks and how long it takes by the patience of its caller, and is one transaction
// at read committed, whatever the server's default is. The connections of Engine are guarded as
// a whole where no pooler shares them, so that a claim saves that statement.
//
// The search_path of every statement is pg_catalog: on our own connections as a parameter of
// the session, behind a pooler or on a caller's pool with each transaction.
//
// Errors are read by their SQLSTATE alone. DB.Fail adds what an operator can do, and drops
// connections that a failover or a restart has made useless; DB.Repeat repeats what the server
// has rolled back because of a concurrent transaction.
package conn
