// Package postgres is the store on PostgreSQL 14 and later.
//
// Runs wait in lanes, one for each (queue, job, priority); a claim deletes rows
// of a narrow queue table and writes one lease for all the runs it takes; a
// heartbeat touches leases and beats only; claim, settle and reclaim update
// runs without touching an index. db/schema.sql describes the tables and
// db/queries every statement: its indexes, its locks, and why it may be
// repeated.
//
// The database's clock decides. The store keeps no session state except on the
// connection that listens for wake-ups, so it works behind a transaction pooler
// when the URL says default_query_exec_mode=exec; only the wake-ups are then
// lost, and workers find new runs by polling.
//
// This package is the surface of the store: its methods, named locks, transactions of callers, and
// what operators do to runs. The rest of the work is in packages of its own under internal, each with
// a page about its idea. Read conn first, which says how statements are sent, and then what you
// are after: enqueue, claiming, admission, settling and leases follow a run from its beginning to
// its end; timetable, sweep and declaring do what is not about one run; wake, numbers and schema
// are used by all of them; reading and examine answer people.
//
// What the store does not promise: an enqueue or a settle whose acknowledgement
// depends on commits that a failover loses is lost with them.
package postgres
