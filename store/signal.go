package store

import (
	"context"
	"time"
)

// SignalKind says what has changed.
type SignalKind int8

// The kinds of signal.
const (
	RunsDue          SignalKind = iota + 1 // runs are due now or within WakeAhead; Run has no meaning
	CancelsRequested                       // the cancellation of running runs was requested
	RunAwaited                             // a client or a schedule waits for the run: the worker that ends it publishes RunEnded
	RunEnded                               // a run has ended for good
	NoticesLeft                            // a run was sent an input in a transaction: a worker has to release it
)

// Signal is a hint that something has changed. A zero Run means any run: the listeners of
// this kind check everything they watch again.
type Signal struct {
	Kind SignalKind
	Run  RunID
	Due  Due // of RunsDue
}

// Due says where the runs of a wake-up are due, and which workers the wake-up goes to. The
// zero value names no lane: the wake-up goes to all.
type Due struct {
	Lane  LaneID // that the runs are in; zero: any
	Names uint64 // hashes of the lane's queue and job, for stores that do not know its number; the store's own
	Runs  int    // roughly how many there are; zero: unknown, and no worker passes the wake-up on
	// Limited: some of the runs have limits, so the lane has a line of turns, even if it had none
	// before. Mixed: others have none. Neither: none of them has limits.
	Limited, Mixed bool
	In             time.Duration // until the first of them is due; zero: it is due now
	After          time.Duration // the head start of another worker, before this one claims
	// Unseen: the heads do not show yet that there is room for the runs, since the claim that
	// the wake-up is for makes it. The worker claims whatever they show.
	Unseen bool

	// Every and For ask the worker to watch: to claim at this interval, for this long. More
	// runs are expected, which are not announced before the watch ends. Zero: no watch.
	Every, For time.Duration

	// Draw decides which workers get the wake-up, and in which order; zero: nothing has
	// been drawn. Passed is how many of them have passed it on.
	Draw   uint32
	Passed int
}

// HandOver is the For of a wake-up by which a worker hands its watch over to another one. It
// is also how long before the end of a watch that happens.
const HandOver = 25 * time.Millisecond

// RunsPerWorker is how many runs there are for each worker that gets a wake-up.
const RunsPerWorker = 16

// Wanted is how many of n workers get the wake-up first.
func (d Due) Wanted(n int) int { return min(max((d.Runs+RunsPerWorker-1)/RunsPerWorker, 1), n) }

// And returns the wake-up for the runs of both.
func (d Due) And(other Due) Due {
	d.Mixed = d.Mixed || other.Mixed || d.Limited != other.Limited
	d.Limited, d.Unseen = d.Limited || other.Limited, d.Unseen || other.Unseen
	return d
}

// Covers reports whether a worker that looks by this wake-up finds the runs of another one.
func (d Due) Covers(other Due) bool {
	return (d.Limited || !other.Limited) && (d.Mixed || !d.Limited || other.Limited && !other.Mixed)
}

// Waker passes signals between all users of a store, in this process and in others. A signal
// is a hint: it may come late, twice, for nothing, or not at all, and only what is stored
// counts. Listeners ignore the kinds that they have no use for.
type Waker interface {
	// Listen calls hear, never concurrently, for every signal that is published in this
	// process or in another. On SQLite, another process only makes known that it has
	// written: its RunAwaited, CancelsRequested and RunEnded do not arrive, and what does
	// is RunsDue, and RunEnded of the zero run. The store itself publishes RunsDue after an
	// enqueue, a settle, a materialization or a reclaim has made runs due now or within
	// WakeAhead. Once it listens, and whenever it may have missed something, Listen calls
	// hear with RunEnded of the zero run, and possibly with other kinds. It blocks until ctx
	// ends, and then returns nil, or until the connection breaks.
	Listen(ctx context.Context, hear func(Signal)) error
	// ListenFor is Listen for a worker that serves these queues and jobs. A store may divide
	// wake-ups among the workers that serve the same jobs on the same queues: a run then
	// wakes one of them, or as many as there is work for. RunsDue names the lane if the
	// store knows it. With a lane, it comes only for lanes that the worker serves, and only
	// when it is the worker's turn, or with After when the worker may have to stand in for
	// the one whose turn it is. Without a lane, it goes to all. A worker without room
	// publishes the signal again with Passed one higher, and it goes to the next worker.
	ListenFor(ctx context.Context, serves Serves, hear func(Signal)) error
	// Publish sends a signal to all listeners, including those of this process. It waits
	// neither for them nor for the database: nil only means that the signal is on its way.
	// Equal signals that wait together are sent once.
	Publish(ctx context.Context, signal Signal) error
}
