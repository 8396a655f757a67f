// Package admit decides what a limit admits. It is the only place that does: the
// three stores ask it, whatever the kind of the limit. It is pure. Instants are
// arguments, and nothing here reads a clock, locks or writes.
//
// # Words
//
// A gate is a limit and a key. A limited run that waits is a waiter, in the line
// of one of its gates and of its lane. A turn is a row that says that a gate may
// have room. An admission is the claim of limited runs: it takes turns, locks
// their gates without waiting, reads what the gates admit in a later statement,
// and asks Decide. A permit is the right to places of a gate; it counts while its
// row exists.
//
// # Two rules that lose no wake-up
//
// A transaction that adds a waiter, or frees a place, inserts a turn in the same
// commit: on the waiter's lane, or on the line of the limit (LimitLine). An
// admission that leaves room inserts the turns that Decide returns. So a waiter
// that could start always has a turn, or an admission is on its way to it.
//
// # Rates
//
// A token bucket is the generic cell rate algorithm, GCRA, of ITU-T
// Recommendation I.371 and the ATM Forum's Traffic Management Specification
// (af-tm-0121.000), in its form of virtual scheduling: one instant, the
// theoretical arrival time, is the whole state. Windows are counts of parts of the
// period. Both are in bucket.go and window.go, with the bound that each holds.
//
// Begin reading at Decide in decide.go.
package admit
