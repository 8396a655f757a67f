package store

import (
	"errors"

	"github.com/durable-worker/durable-worker/lease"
)

// Sentinels of the package, matched with errors.Is.
var (
	// ErrNotFound says that there is no such run, or no such schedule.
	ErrNotFound = errors.New("durable: not found")
	// ErrUnknownJob says that no worker has declared a job of this name.
	ErrUnknownJob = errors.New("durable: unknown job")
	// ErrUnknownLimit says that no worker has declared a limit of this name, and no
	// operator has set one.
	ErrUnknownLimit = errors.New("durable: unknown limit")
	// ErrInvalid says that the input was refused before anything was stored. The
	// text names everything that is wrong.
	ErrInvalid = errors.New("durable: invalid")
	// ErrSchema says that the database's schema is missing, older than the program
	// needs, or too new for it. A store that is open finds out within half a minute.
	ErrSchema = errors.New("durable: schema is not compatible")
	// ErrConflict says that what is stored does not allow the change: it exists
	// already, has changed since it was read, or is running.
	ErrConflict = errors.New("durable: conflict")
)

// IsRefusal reports whether an error says that nothing was stored, and that nothing would be the
// next time.
func IsRefusal(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) || errors.Is(err, lease.ErrLost)
}
