// Package rules holds the decisions that all stores make alike, as functions of
// what a store has read: what a crash makes of a run, what an operator may
// change, how long a run is kept, which declaration counts. Each decision, each
// sentence that is stored and each word of the audit log is written here once.
//
// The stores in memory and SQLite call these functions. PostgreSQL decides in its
// statements: it is given the thresholds and the sentences as parameters, and what
// its SQL has to say in several statements is a block of db/blocks, which
// make generate copies between "-- block: NAME" and "-- end". internal/archtest
// compares the copies, and the suite in store/storetest runs each rule as a table on
// every store.
//
// Nothing here reads a clock, locks, or writes. Begin reading at Crash in
// crash.go.
package rules
