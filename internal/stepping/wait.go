package stepping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Sleep returns nil when the sleep of this name is over, else a park.
func (b *Book) Sleep(ctx context.Context, wait store.NewWait) error {
	known, err := b.Begin(ctx, wait.Name)
	if err != nil || known == nil && wait.For == 0 && wait.Until.IsZero() {
		return err
	}
	if known == nil {
		if known, _, err = b.beginWait(ctx, wait); err != nil {
			return err
		}
	}
	if known.Kind != store.StepSleep {
		return otherKind(wait.Name, known.Kind, store.StepSleep)
	}
	left := b.Left(known.Until)
	if left > Nearly {
		return b.park(ctx, &ParkError{Name: wait.Name, Until: b.host.Elapsed() + left, Kind: store.StepSleep})
	}
	return b.stay(ctx, left)
}

// stay waits in the handler.
func (b *Book) stay(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func otherKind(name string, is, want store.StepKind) error {
	return fmt.Errorf("%w: step %q is stored as %q, not as %q: give it another name", store.ErrInvalid, name, is, want)
}

// beginWait records a wait, and returns what is recorded, with the input if it is there.
func (b *Book) beginWait(ctx context.Context, wait store.NewWait) (*store.StepRecord, *store.Input, error) {
	wait.Holder = b.x.Holder()
	if err := wait.Check(); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	err := b.full(wait.Name)
	b.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	var found store.RunSteps
	err = b.steadily(ctx, func() error {
		return b.x.Insist(ctx, func(ctx context.Context) (err error) {
			found, err = b.host.Store.BeginWait(ctx, wait)
			return err
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("wait %q: %w", wait.Name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readAt, b.now, b.stretch = b.host.Elapsed(), found.Now, true
	step := found.Steps[0]
	b.keep(step)
	if len(found.Inputs) == 0 {
		return &step, nil, nil
	}
	b.inputs[wait.Name] = found.Inputs[0]
	return &step, &found.Inputs[0], nil
}

// Receive returns the input of a name, or the mark of having given up; else the error is a park.
func (b *Book) Receive(ctx context.Context, name string, timeout time.Duration) (*store.Input, error) {
	known, err := b.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	input := b.input(name)
	if known == nil && input == nil {
		if known, input, err = b.beginWait(ctx, store.NewWait{Name: name, Kind: store.StepInput, For: timeout}); err != nil {
			return nil, err
		}
	}
	switch {
	case known != nil && known.Kind != store.StepInput:
		return nil, otherKind(name, known.Kind, store.StepInput)
	case input != nil:
		return input, nil
	case known.Until.IsZero():
		return nil, b.park(ctx, &ParkError{Name: name, Until: -1, Kind: store.StepInput})
	}
	left := b.Left(known.Until)
	if left > Nearly {
		return nil, b.park(ctx, &ParkError{Name: name, Until: b.host.Elapsed() + left, Kind: store.StepInput})
	}
	if err := b.stay(ctx, left); err != nil {
		return nil, err
	}
	return b.giveUp(ctx, name)
}

// input returns the input of a name, as far as this execution knows.
func (b *Book) input(name string) *store.Input {
	b.mu.Lock()
	defer b.mu.Unlock()
	if input, found := b.inputs[name]; found {
		return &input
	}
	return nil
}

// giveUp ends a wait whose deadline has passed.
func (b *Book) giveUp(ctx context.Context, name string) (*store.Input, error) {
	var input store.Input
	err := b.steadily(ctx, func() error {
		return b.x.Insist(ctx, func(ctx context.Context) (err error) {
			input, err = b.host.Store.GiveUp(ctx, b.x.Holder(), name)
			return err
		})
	})
	if errors.Is(err, store.ErrConflict) { // a transaction that sends it is open: its end decides
		return nil, b.park(ctx, &ParkError{Name: name, Until: b.host.Elapsed() + time.Second, Kind: store.StepInput})
	}
	if err != nil {
		return nil, fmt.Errorf("receive %q: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inputs[name] = input
	return &input, nil
}
