package durable

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// Permanent makes the run dead immediately, even if attempts are left. Like
// Cancel and RetryAfter, it never returns nil, not even for a nil err.
func Permanent(err error) error { return &endingError{kind: store.Death, err: err} }

// RetryAfter fails the attempt and makes the run due again after d, instead of
// after the delay of the retry policy. If no attempt is left, the run is dead.
func RetryAfter(d time.Duration, err error) error {
	return &endingError{kind: store.Failure, after: max(d, 0), err: err}
}

// Snooze makes the run due again after d, without spending an attempt.
func Snooze(d time.Duration) error { return &endingError{kind: store.Snoozed, after: max(d, 0)} }

// Cancel cancels the run, with err as the reason.
func Cancel(err error) error { return &endingError{kind: store.Cancellation, err: err} }

// RetryPolicy says when a failed attempt is tried again.
type RetryPolicy interface {
	// Delay returns how long after the failed attempt (1 is the first) with
	// the given error the run is due again. A negative answer counts as zero.
	Delay(attempt int, err error) time.Duration
}

// RetryFunc is a policy of your own.
type RetryFunc func(attempt int, err error) time.Duration

// Delay calls the function.
func (f RetryFunc) Delay(attempt int, err error) time.Duration { return f(attempt, err) }

// Backoff is the built-in policy: Base, Base·Factor, Base·Factor², … up to
// Max, each multiplied by a random factor within 1 ± Jitter.
type Backoff struct {
	Base   time.Duration // before the second attempt
	Max    time.Duration // cap, before jitter; zero means no cap
	Factor float64       // below 1, or no number, counts as 1, a fixed delay
	Jitter float64       // 0 to 1; 0.2 spreads delays over ±20 %; no number counts as 0
}

// Fixed waits the same time after each failure.
func Fixed(d time.Duration) Backoff { return Backoff{Base: d, Factor: 1} }

// Exponential doubles the delay after each failure, up to a cap.
func Exponential(base, maximum time.Duration) Backoff {
	return Backoff{Base: base, Max: maximum, Factor: 2}
}

// WithJitter returns the policy with delays spread over 1 ± ratio.
func (b Backoff) WithJitter(ratio float64) Backoff {
	b.Jitter = ratio
	return b
}

// Delay returns the time to wait after the given failed attempt.
func (b Backoff) Delay(attempt int, _ error) time.Duration {
	factor, jitter := 1.0, 0.0
	if b.Factor > 1 {
		factor = b.Factor
	}
	if b.Jitter > 0 {
		jitter = math.Min(b.Jitter, 1)
	}
	delay := float64(b.Base) * math.Pow(factor, float64(max(attempt-1, 0)))
	if b.Max > 0 {
		delay = math.Min(delay, float64(b.Max))
	}
	delay *= 1 + jitter*(2*rand.Float64()-1) //nolint:gosec // spreads load, decides nothing secret
	return time.Duration(math.Min(delay, float64(store.MaxDelay)))
}
