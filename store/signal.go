package store

import (
	"context"
	"time"
)

// SignalKind says what has changed.
type SignalKind int8

// The kinds of signal.
const (
	RunsDue          SignalKind = iota + 1 // runs are due now or within WakeAhead; the Run means nothing
	CancelsRequested                       // a running run is to be cancelled
	RunAwaited                             // a client or schedule waits for the end of a run: the worker that ends it announces RunEnded
	RunEnded                               // a run has ended for good
)

// Signal is a hint that something has changed. A zero Run means any run:
// listeners of this kind re-check everything they watch.
type Signal struct {
	Kind SignalKind
	Run  RunID
	Due  Due // of RunsDue
}

// Due says of a wake-up where runs are due, and to which workers it goes. The zero
// value names no lane: it goes to all.
type Due struct {
	Lane  LaneID        // in which the runs are; zero: any
	Names uint64        // of the lane's queue and job, hashed, for those who do not know its number; the store's own
	Runs  int           // about how many they are
	In    time.Duration // until the first of them is due; zero: it is
	After time.Duration // how long this worker is to leave it to another before it looks

	// Every and For ask the worker to look again by itself, so often and for so long:
	// more is to be expected, and not announced before. Zero: not.
	Every, For time.Duration

	// Draw decides which workers get the wake-up, in which order; zero: none has
	// been drawn. Passed is how many of them have passed it on.
	Draw   uint32
	Passed int
}

// RunsPerWorker is how many runs a wake-up is about for each worker that gets it.
const RunsPerWorker = 16

// Wanted is how many of n workers get the wake-up first.
func (d Due) Wanted(n int) int { return min(max((d.Runs+RunsPerWorker-1)/RunsPerWorker, 1), n) }

// Waker passes signals between those who use one store, in this process and in
// others. A signal is a hint: it may come late, twice, for nothing, or not at
// all; what is stored decides. Kinds that a listener has no use for are ignored.
type Waker interface {
	// Listen calls hear, never concurrently, for every signal that is
	// announced in this process or in another, except RunAwaited, CancelsRequested and
	// RunEnded on SQLite, where another process makes known only that it has
	// written: that arrives as RunsDue and RunEnded of the zero run. The store
	// itself announces RunsDue after an enqueue, a settle, a materialization or
	// a reclaim has made runs due now or within WakeAhead. Once it listens, and
	// when it may have missed something, Listen calls hear with RunEnded of the
	// zero run, and may do so with other kinds. It blocks until ctx ends (and
	// returns nil) or the connection breaks.
	Listen(ctx context.Context, hear func(Signal)) error
	// ListenFor is Listen for a worker that serves these. A store may share wake-ups
	// out: of workers that serve the same jobs on the same queues a run wakes one, or
	// as many as there is work for, and of the others none. RunsDue then names the
	// lane where the store knows it, comes only for lanes that the worker serves, and
	// only when it is the worker's turn, or with After when it may have to stand in
	// for the one whose turn it is. A worker without room publishes the signal
	// again, with Passed one higher, and it goes to the next. RunsDue without a lane
	// goes to all.
	ListenFor(ctx context.Context, serves Serves, hear func(Signal)) error
	// Publish passes a signal on to all that listen, in this process too. It
	// does not wait for them, nor for the database: nil means only that the
	// signal is on its way. Equal signals that wait together are sent once.
	Publish(ctx context.Context, signal Signal) error
}
