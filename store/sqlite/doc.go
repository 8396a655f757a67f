// Package sqlite keeps runs in one SQLite file, for programs that want durable
// background work without a database server. It needs no C compiler.
//
// Several processes of one machine may share the file. They take turns at writing, each for a
// few milliseconds while several want to write; reading never waits for them. A network file
// system is refused, because its locks do not hold.
//
// What is promised. With the default [SyncFull] a write whose call returned
// survives the loss of power. With [SyncNormal] the last writes may be lost
// with the power, but the file stays whole. A process that is stopped (not
// ended) while it writes stops every other writer of the file until it continues
// or ends: nothing is lost, but no promise about time holds meanwhile.
//
// Time. The store's clock is the machine's, except that it never goes back, not even from one
// process to the next: processes record the time in the file. Only if that time is more than
// a day ahead of the machine's clock do processes that start afterwards ignore it.
//
// The SQL is in db/sqlite. Statements that sqlc reads become the package
// internal/queries; the others are loaded by name.
package sqlite
