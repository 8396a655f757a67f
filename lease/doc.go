// Package lease defines who may write to a run, and until when.
//
// A lease is the exclusive right to write to the runs of one claim until an
// instant of the store's clock. It is identified by a random [ClaimID], which
// the worker creates before its request, so that a repeat is harmless. Every
// write names the ClaimID and is refused when it is no longer the run's.
//
// Two clocks take part and only one of them decides. The store's clock says
// when a lease has expired and may be taken over. The worker's monotonic clock only
// makes the worker stop earlier: [Terms.Deadline] counts elapsed time from
// before the request was sent, so that the worker's deadline always comes
// before the store's expiry as long as the two clocks run at nearly the same
// rate (within one percent plus the margin). No wall time of a worker is ever
// stored or compared.
//
// What a lease does not guarantee: a process that stalls for longer than the
// margin can still be executing when another worker begins. Its writes are
// refused, but its effects outside the store are its own; code that has such
// effects hands the [Fence] to the resource it writes to and lets that refuse a
// smaller number than the largest it has seen.
package lease
