package operate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// Config is what an Operator needs beside its store. The zero value is useful.
type Config struct {
	// Locks are the named locks that the methods on locks work with. Without
	// them these methods answer ErrInvalid.
	Locks lock.Locks
	// Jobs are jobs known to the program. Job finds one of them when no worker
	// has declared a job of that name. What they hide of args is hidden, also before one
	// has.
	Jobs []store.JobInfo
	// Examine returns the findings of the storage engine, for the Operator's
	// method of this name. Without it there are none.
	Examine func(ctx context.Context) (store.Findings, error)
	// Disconnected reports whether an error means that the connection to the store
	// broke. Calls that are safe to repeat are then repeated, up to four times
	// within two seconds. Without it no call is repeated.
	Disconnected func(err error) bool
	// Transient reports whether an error means that the store cannot be reached now,
	// for the Operator's CodeOf. Without it there are none.
	Transient func(err error) bool
	// Repeating is called before a call is repeated: with the error of the last try,
	// and the pause before the next one.
	Repeating func(err error, pause time.Duration)
	// Redact hides values of args, results, checkpoints, steps and inputs from all who read through the
	// Operator, beside what jobs hide of their own runs (durable.Redacted): those of Jobs,
	// and those that workers have declared.
	// Default: nothing is hidden.
	Redact *Redaction
	// Changed is called after each change that an Actor has made, with the words of the
	// audit: for events. It must not block. A change of all runs of a filter is passed on
	// once, when it ends. What the store does by itself is not passed on.
	Changed func(change store.Change)
	// Now is the time, used for previews of schedules. Default: time.Now.
	Now func() time.Time
}

// Operator reads runs, queues, schedules, locks and the audit log of one store, and
// enqueues runs. Its methods may be called from many goroutines.
type Operator struct {
	*shared

	hides Hiding
}

// shared is what an Operator has in common with those that hide more.
type shared struct {
	store    store.Store
	client   *durable.Client
	config   Config
	redacted atomic.Pointer[redactions] // nil: not read yet
	hub      hub
	bulks    bulks

	counting counting
	likes    likes
	sessions sessions
}

// New returns an Operator of a store.
func New(db store.Store, config Config) *Operator {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Disconnected != nil {
		db = repeating{Store: db, disconnected: config.Disconnected, repeating: config.Repeating, pause: firstPause}
	}
	return &Operator{shared: &shared{store: db, client: durable.NewClient(db), config: config}}
}

// Actor makes changes on behalf of one person or program. It reads as its
// Operator does.
type Actor struct {
	*Operator

	by string
}

// As returns an Actor. by names who makes the changes, for the audit log: user@host
// for a person at a terminal. The changes of an Actor without a name, or with
// more than 256 bytes of it, are refused with ErrInvalid.
func (o *Operator) As(by string) *Actor { return &Actor{o, by} }

// By is the name under which the audit log records the Actor's changes.
func (a *Actor) By() string { return a.by }

// Now is the time of the Operator's clock, from which answers count back.
func (o *Operator) Now() time.Time { return o.config.Now() }

// locks returns the named locks, if there are any.
func (o *Operator) locks() (lock.Locks, error) {
	if o.config.Locks == nil {
		return nil, fmt.Errorf("%w: the operator has no locks", store.ErrInvalid)
	}
	return o.config.Locks, nil
}

// whole keeps an empty list from being written as null.
func whole[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
