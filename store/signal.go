package store

import "context"

// SignalKind says what a Signal tells of.
type SignalKind int8

// The kinds of signal.
const (
	RunsDue     SignalKind = iota + 1 // runs are due now or within WakeAhead; the Run means nothing
	CancelAsked                       // a running run is to be cancelled
	RunAwaited                        // somebody waits for the end of a run: whoever ends it announces RunEnded
	RunEnded                          // a run has ended for good
)

// Signal is a hint that something has changed. With the zero Run it speaks of
// some run: whoever cares for this kind looks at all of its own.
type Signal struct {
	Kind SignalKind
	Run  RunID
}

// Waker passes signals between those who use one store, in this process and in
// others. A signal is a hint: it may come late, twice, for nothing, or not at
// all; what is stored decides. Kinds that a listener has no use for are ignored.
type Waker interface {
	// Listen calls hear, never twice at the same time, for every signal that is
	// announced in this process or in another, save RunAwaited, CancelAsked and
	// RunEnded on SQLite, where another process makes known only that it has
	// written: that is heard as RunsDue and RunEnded of the zero run. The store
	// itself announces RunsDue after an enqueue, a settle, a materialization or
	// a reclaim has made runs due now or within WakeAhead. Once it listens, and
	// when it may have missed something, Listen calls hear with RunEnded of the
	// zero run, and may do so with other kinds. It blocks until ctx ends (and
	// returns nil) or the connection breaks.
	Listen(ctx context.Context, hear func(Signal)) error
	// Announce passes a signal on to all that listen, in this process too. It
	// does not wait for them, nor for the database: nil means only that the
	// signal is on its way. Equal signals that wait together are sent once.
	Announce(ctx context.Context, signal Signal) error
}
