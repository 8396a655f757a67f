package events

import (
	"errors"
	"time"
)

// Permanent returns an error of a Sink after which the batch is dropped and not sent
// again.
func Permanent(err error) error { return &refusal{err: err, permanent: true} }

// After returns an error of a Sink after which the batch is sent again, not before the
// pause has passed, which counts for a minute at most.
func After(err error, pause time.Duration) error { return &refusal{err: err, pause: pause} }

// refusal is an error that says what is to follow.
type refusal struct {
	err       error
	permanent bool
	pause     time.Duration
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

func isPermanent(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.permanent
}

// asked is the pause that the sink has asked for.
func asked(err error) time.Duration {
	if r, ok := errors.AsType[*refusal](err); ok {
		return min(r.pause, longestPause)
	}
	return 0
}
