package stepping

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Wait is one of several waits of which the first counts, as it is now.
type Wait struct {
	Name string
	Kind store.StepKind
	Over bool
	// At is when the wait ended, if it is over, and otherwise when it ends by itself; zero: it does
	// not. It is on the store's clock.
	At time.Time
}

// BeginSleep begins a sleep as Sleep does, but does not wait for its end.
func (b *Book) BeginSleep(ctx context.Context, wait store.NewWait) (Wait, error) {
	known, err := b.Recorded(ctx, wait.Name)
	if err != nil {
		return Wait{}, err
	}
	if known == nil && wait.For == 0 && wait.Until.IsZero() {
		return Wait{Name: wait.Name, Kind: store.StepSleep, Over: true, At: b.Now()}, nil
	}
	if known == nil {
		known, _, err = b.beginWait(ctx, wait)
		if err != nil {
			return Wait{}, err
		}
	}
	if known.Kind != store.StepSleep {
		return Wait{}, otherKind(wait.Name, known.Kind, store.StepSleep)
	}
	return Wait{Name: wait.Name, Kind: store.StepSleep, Over: b.Left(known.Until) == 0, At: known.Until}, nil
}

// BeginInput begins to wait for an input as Receive does, but does not wait for it, and does not
// give up.
func (b *Book) BeginInput(ctx context.Context, name string, timeout time.Duration) (Wait, error) {
	known, err := b.Recorded(ctx, name)
	if err != nil {
		return Wait{}, err
	}
	input := b.input(name)
	if known == nil && input == nil {
		known, input, err = b.beginWait(ctx, store.NewWait{Name: name, Kind: store.StepInput, For: timeout})
		if err != nil {
			return Wait{}, err
		}
	}
	wait := Wait{Name: name, Kind: store.StepInput}
	switch {
	case known != nil && known.Kind != store.StepInput:
		return Wait{}, otherKind(name, known.Kind, store.StepInput)
	case input != nil:
		wait.Over, wait.At = true, input.At
	case !known.Until.IsZero():
		wait.Over, wait.At = b.Left(known.Until) == 0, known.Until
	}
	return wait, nil
}

// First returns the name of the wait that was over first. The error is a park until one is.
func (b *Book) First(ctx context.Context, name string, waits []Wait) (string, error) {
	if first := earliest(waits, func(w *Wait) bool { return w.Over }); first != nil {
		return first.Name, nil
	}
	park := &ParkError{Name: name, Until: -1, Of: make([]*ParkError, len(waits))}
	if next := earliest(waits, func(w *Wait) bool { return !w.At.IsZero() }); next != nil {
		left := b.Left(next.At)
		if left <= Nearly {
			return next.Name, b.stay(ctx, left)
		}
		park.Until = b.host.Elapsed() + left
	}
	for i := range waits {
		park.Of[i] = &ParkError{Name: waits[i].Name, Until: -1, Kind: waits[i].Kind}
		if !waits[i].At.IsZero() {
			park.Of[i].Until = b.host.Elapsed() + b.Left(waits[i].At)
		}
	}
	return "", b.park(ctx, park)
}

// earliest returns the first in time of the waits that are picked; nil: none is.
func earliest(waits []Wait, pick func(*Wait) bool) (first *Wait) {
	for i := range waits {
		if w := &waits[i]; pick(w) && (first == nil || w.At.Before(first.At)) {
			first = w
		}
	}
	return first
}
