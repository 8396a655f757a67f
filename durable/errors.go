package durable

import "errors"

// Sentinels of the package, matched with errors.Is.
var (
	// ErrNotFound: there is no such run, or no such schedule.
	ErrNotFound = errors.New("durable: not found")
	// ErrUnknownJob: no worker has declared a job of this name.
	ErrUnknownJob = errors.New("durable: unknown job")
	// ErrInvalid: the input was refused before anything was stored. The text
	// names every offender.
	ErrInvalid = errors.New("durable: invalid")
	// ErrConflict: what is stored does not allow it, because it is there
	// already, has changed since it was read, or is at work.
	ErrConflict = errors.New("durable: conflict")
	// ErrDraining is the cause of a handler's context when its worker stops
	// and the drain time is over.
	ErrDraining = errors.New("durable: worker is draining")
	// ErrTimeout is the cause of a handler's context when the attempt has
	// taken longer than the run's timeout.
	ErrTimeout = errors.New("durable: attempt timed out")
	// ErrCancelled is the cause of a handler's context when an operator has
	// asked for its run to be cancelled.
	ErrCancelled = errors.New("durable: run is to be cancelled")
)
