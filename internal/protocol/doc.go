// Package protocol holds the decisions of a worker as pure step functions:
// when to renew and when a lease is lost (Beat), when to ask for how many runs
// (Ask), how a drain proceeds (Drain), and which expired leases may be reclaimed
// (Takeover).
//
// Each machine is a value with a Step method that takes one event and returns
// effects. A machine does no I/O, starts nothing, knows no clock and draws
// no random numbers: instants are monotonic time of the caller and arrive with
// the events, as does randomness. The caller carries out the effects. The same
// machines can therefore be driven by a worker, by a test, or by a simulator
// with a virtual clock. None is safe for concurrent use; the caller serialises
// its events.
package protocol
