// Package heartbeat keeps leases alive.
//
// A Keeper renews all leases of one holder with one statement per beat, on its
// own schedule, and cancels the context of a lease that is lost: refused by the
// store, or not renewed in time. The local deadline always comes before the
// store grants the lease to another holder (lease.Terms.Deadline), so code that
// obeys its context has stopped by then, provided the process itself was running.
//
// lock.Guard runs a function under a named lock.
//
// Not promised: a process that is paused notices only when it resumes. What it
// writes then is refused by the store, which compares claim ids, not times.
package heartbeat
