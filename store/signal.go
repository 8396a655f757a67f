package store

import "context"

// SignalKind says what has changed.
type SignalKind int8

// The kinds of signal.
const (
	RunsDue     SignalKind = iota + 1 // runs are due now or within WakeAhead; the Run means nothing
	CancelAsked                       // a running run is to be cancelled
	RunAwaited                        // a client or schedule waits for the end of a run: the worker that ends it announces RunEnded
	RunEnded                          // a run has ended for good
)

// Signal is a hint that something has changed. A zero Run means any run:
// listeners of this kind re-check everything they watch.
type Signal struct {
	Kind SignalKind
	Run  RunID
}

// Waker passes signals between those who use one store, in this process and in
// others. A signal is a hint: it may come late, twice, for nothing, or not at
// all; what is stored decides. Kinds that a listener has no use for are ignored.
type Waker interface {
	// Listen calls hear, never concurrently, for every signal that is
	// announced in this process or in another, except RunAwaited, CancelAsked and
	// RunEnded on SQLite, where another process makes known only that it has
	// written: that arrives as RunsDue and RunEnded of the zero run. The store
	// itself announces RunsDue after an enqueue, a settle, a materialization or
	// a reclaim has made runs due now or within WakeAhead. Once it listens, and
	// when it may have missed something, Listen calls hear with RunEnded of the
	// zero run, and may do so with other kinds. It blocks until ctx ends (and
	// returns nil) or the connection breaks.
	Listen(ctx context.Context, hear func(Signal)) error
	// Publish passes a signal on to all that listen, in this process too. It
	// does not wait for them, nor for the database: nil means only that the
	// signal is on its way. Equal signals that wait together are sent once.
	Publish(ctx context.Context, signal Signal) error
}
