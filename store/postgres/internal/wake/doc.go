// Package wake decides which worker is woken for a run, and when.
//
// A poll finds every run, so a wake-up is a hint: it may be lost, late or repeated, and nothing
// that it does not bring is missed for longer than a poll. It is worth its price only as long as
// it costs the server little. Two costs decide the design. The server commits one notifying
// transaction at a time, so that a process which notifies for each enqueue slows down all others.
// And each notification wakes one server process for every session that listens, which is dearer
// than an empty claim.
//
// The path of a wake-up, from the enqueue to the claim:
//
//   - An enqueue of one's own carries the notification in its transaction (Ride), or leaves it in
//     a box that is emptied a few milliseconds later. An enqueue in a caller's transaction
//     (HintAtCommit) may carry one too; the store does not see that commit, so it also arms
//     trailing hints after 10 ms, 100 ms and 1 s.
//   - The pace (pace.go) says whether a notification may be sent now. A process that enqueues
//     often asks one worker to watch: to claim every few milliseconds for 100 ms. Until then the
//     process sends nothing for the lanes of that watch.
//   - The worker that watches announces it by advisory locks, so that other processes need not
//     notify either (watch.go). If it dies, its session ends and its locks with it.
//   - Workers that serve the same queues and jobs form a crew (crew.go). A wake-up has a draw;
//     each member hashes it with every member, which orders them without a message: as many as
//     the runs need claim immediately, one more after a head start, the others not at all.
//     Members learn of each other by notifications and from the list of the server's locks.
//
// Places of limits that become free take the same path, but those who wait for them are woken in
// this process first. Decision page 0031 has the figures.
package wake
