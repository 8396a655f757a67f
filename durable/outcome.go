package durable

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The errors below are how a handler ends its run other than by success or an
// ordinary, retried error. They may be wrapped; the outermost one counts.

type endingError struct {
	kind  store.OutcomeKind
	after time.Duration
	err   error
}

func (e *endingError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("durable: %s", e.kind)
	}
	return e.err.Error()
}

func (e *endingError) Unwrap() error { return e.err }

// Permanent ends the run in dead now, whatever attempts are left. Like Cancel
// and RetryAfter it does so for a nil err too: it is never nil itself.
func Permanent(err error) error { return &endingError{kind: store.Death, err: err} }

// RetryAfter fails the attempt and makes the run due again after d instead of
// what the retry policy says. When no attempt is left the run is dead.
func RetryAfter(d time.Duration, err error) error {
	return &endingError{kind: store.Failure, after: max(d, 0), err: err}
}

// Snooze puts the run back until d from now; no attempt is spent.
func Snooze(d time.Duration) error { return &endingError{kind: store.Snoozed, after: max(d, 0)} }

// Cancel ends the run in cancelled, with err as the reason.
func Cancel(err error) error { return &endingError{kind: store.Cancellation, err: err} }
