package lease

import (
	"errors"
	"fmt"
	"time"
)

// MinDuration is the shortest lease that [Terms.Validate] accepts, and MaxDuration the
// longest.
const (
	MinDuration = time.Second
	MaxDuration = 100 * 365 * 24 * time.Hour
)

// Terms say how long a lease lasts and how often it is renewed.
type Terms struct {
	// Duration is the life of a lease from one renewal to its expiry on the
	// store's clock. One second to 100 years; default 30 s.
	Duration time.Duration
	// Heartbeat is the time between two renewals. Default Duration/3; at most
	// Duration/2, so that a second try fits before the deadline.
	Heartbeat time.Duration
}

// WithDefaults returns the terms with zero fields replaced by their defaults.
func (t Terms) WithDefaults() Terms {
	if t.Duration == 0 {
		t.Duration = 30 * time.Second
	}
	if t.Heartbeat == 0 {
		t.Heartbeat = t.Duration / 3
	}
	return t
}

// Validate reports every constraint between the fields that is violated.
func (t Terms) Validate() error {
	var faults []error
	if t.Duration < MinDuration {
		faults = append(faults, fmt.Errorf("lease duration %v is below %v", t.Duration, MinDuration))
	}
	if t.Duration > MaxDuration {
		faults = append(faults, fmt.Errorf("lease duration %v: want at most %v", t.Duration, MaxDuration))
	}
	if t.Heartbeat <= 0 {
		faults = append(faults, fmt.Errorf("heartbeat interval %v is not positive", t.Heartbeat))
	}
	if t.Heartbeat > t.Duration/2 {
		faults = append(faults, fmt.Errorf("heartbeat interval %v is above half the lease duration %v", t.Heartbeat, t.Duration))
	}
	return errors.Join(faults...)
}

// Margin is the safety distance between the worker's own deadline and the
// store's expiry: max(L/10, min(1 s, L/6)).
func (t Terms) Margin() time.Duration {
	return max(t.Duration/10, min(time.Second, t.Duration/6))
}

// Deadline returns the instant of the worker's monotonic time at which it must have
// stopped, for a lease granted or renewed by a request sent at asked. One
// percent of the duration is left for clocks that run at different rates.
func (t Terms) Deadline(asked time.Duration) time.Duration {
	return asked + t.Duration - t.Duration/100 - t.Margin()
}
