package durable

import (
	"errors"

	"github.com/durable-worker/durable-worker/store"
)

// The errors of a store, matched with errors.Is.
var (
	ErrNotFound   = store.ErrNotFound   // there is no such run, or no such schedule
	ErrUnknownJob = store.ErrUnknownJob // no worker has declared a job of this name
	ErrInvalid    = store.ErrInvalid    // the input was refused before anything was stored; the text names all that is wrong
	ErrConflict   = store.ErrConflict   // what is stored does not allow the change
)

// The causes of a handler's context that has ended, for context.Cause.
var (
	ErrDraining  = errors.New("durable: worker is draining")     // the worker stops, and the time to finish is over
	ErrTimeout   = errors.New("durable: attempt timed out")      // the attempt has taken longer than the run's timeout
	ErrCancelled = errors.New("durable: run is to be cancelled") // an operator has asked for it
)
