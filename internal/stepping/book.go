package stepping

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Book is what one execution knows of its run's steps, waits and inputs. Its methods may be called
// from many goroutines.
type Book struct {
	host     *Host
	x        Execution
	recorder *Recorder
	root     branch

	mu      sync.Mutex
	reading chan struct{} // closed when the read under way has ended; nil: none is
	read    bool
	readAt  time.Duration // on the worker's clock, when the store's was at now
	now     time.Time
	expires time.Time // of the run; zero: it does not
	known   map[string]store.StepRecord
	inputs  map[string]store.Input
	used    map[string]bool // names that this execution has used
	bytes   int             // of the values of the known steps
	parks   []*ParkError
	stretch bool // a wait was recorded for the first time: a new stretch of the run's life
}

// NewBook returns the book of an execution, which a Recorder's worker executes.
func NewBook(recorder *Recorder, x Execution) *Book {
	return &Book{host: &recorder.host, x: x, recorder: recorder, used: map[string]bool{}}
}

// Open returns why nothing may happen any more in the branch of ctx: the handler has returned, or
// the branch is parked.
func (b *Book) Open(ctx context.Context) error {
	if b == nil {
		return nil
	}
	if err := b.x.Gone(); err != nil {
		return err
	}
	return b.branchOf(ctx).isClosed()
}

// Parked returns a park of any branch; nil: there is none.
func (b *Book) Parked() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.parks) == 0 {
		return nil
	}
	return b.parks[0]
}

// Parks are the waits by which the execution is parked.
func (b *Book) Parks() (parks []*ParkError) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parks {
		if len(p.Of) == 0 {
			parks = append(parks, p)
		}
		parks = append(parks, p.Of...)
	}
	return parks
}

// Park closes the branch of ctx, so that a step is tried again after a while.
func (b *Book) Park(ctx context.Context, name string, after time.Duration) error {
	return b.park(ctx, &ParkError{Name: name, Until: b.host.Elapsed() + after})
}

func (b *Book) park(ctx context.Context, p *ParkError) error {
	b.mu.Lock()
	b.parks = append(b.parks, p)
	b.mu.Unlock()
	return b.branchOf(ctx).close(p)
}

// After is how long the run is put back, when the execution ends with a park: until the first of
// its waits is over, or it expires.
func (b *Book) After() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	after := store.MaxDelay
	if !b.expires.IsZero() {
		after = min(after, b.left(b.expires))
	}
	for _, p := range b.parks {
		if p.Until >= 0 {
			after = min(after, max(p.Until-b.host.Elapsed(), 0))
		}
	}
	return after
}

// Looks are the inputs and the children that the run waits for, when the execution has ended with a park.
func (b *Book) Looks() (looks []store.Look) {
	for _, p := range b.Parks() {
		if p.Kind == store.StepInput || p.Kind == store.StepChildren {
			looks = append(looks, store.Look{Run: b.x.Holder().Run, Name: p.Name, Kind: p.Kind})
		}
	}
	return looks
}

// Stretched reports whether a new stretch of the run's life has begun: attempts count from here.
func (b *Book) Stretched() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stretch
}

// load reads what the run has recorded, once in an execution.
func (b *Book) load(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.read {
			b.mu.Unlock()
			return nil
		}
		if reading := b.reading; reading != nil {
			b.mu.Unlock()
			select {
			case <-reading:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		done := make(chan struct{})
		b.reading = done
		b.mu.Unlock()
		found, err := b.fetch(ctx)
		b.mu.Lock()
		if b.reading = nil; err == nil {
			b.take(found)
		}
		b.mu.Unlock()
		close(done)
		if err != nil {
			return err
		}
	}
}

// fetch reads the steps.
func (b *Book) fetch(ctx context.Context) (found store.RunSteps, err error) {
	found, err = b.recorder.readings.insist(ctx, b.x, b.x.Holder().Run)
	if err != nil {
		return found, fmt.Errorf("read steps: %w", err)
	}
	return found, nil
}

// take keeps what was read. b.mu is held.
func (b *Book) take(found store.RunSteps) {
	b.read, b.readAt, b.now, b.expires, b.bytes = true, b.host.Elapsed(), found.Now, found.ExpiresAt, 0
	b.known, b.inputs = make(map[string]store.StepRecord, len(found.Steps)), make(map[string]store.Input, len(found.Inputs))
	for _, step := range found.Steps {
		b.keep(step)
	}
	for _, input := range found.Inputs {
		b.inputs[input.Name] = input
	}
}

// keep takes note of a recorded step. b.mu is held.
func (b *Book) keep(step store.StepRecord) {
	b.bytes += len(step.Value) - len(b.known[step.Name].Value)
	b.known[step.Name] = step
}

// Left is how long it is until an instant on the store's clock.
func (b *Book) Left(until time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left(until)
}

// Now is the time on the store's clock.
func (b *Book) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Add(b.host.Elapsed() - b.readAt)
}

// left is Left for a caller that holds b.mu.
func (b *Book) left(until time.Time) time.Duration {
	return max(until.Sub(b.now.Add(b.host.Elapsed()-b.readAt)), 0)
}

// Recorded returns what is recorded under a name; nil: nothing is.
func (b *Book) Recorded(ctx context.Context, name string) (*store.StepRecord, error) {
	if err := b.Open(ctx); err != nil {
		return nil, err
	}
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if step, found := b.known[name]; found {
		return &step, nil
	}
	return nil, nil
}

// Begin takes a name for this execution, and returns what is recorded under it or under one of its
// aliases.
func (b *Book) Begin(ctx context.Context, name string, aliases ...string) (*store.StepRecord, error) {
	if err := b.Open(ctx); err != nil {
		return nil, err
	}
	names := append([]string{name}, aliases...)
	for _, name := range names {
		if err := store.CheckStepName(name); err != nil {
			return nil, fmt.Errorf("%w: step: %w", store.ErrInvalid, err)
		}
	}
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[name] {
		return nil, fmt.Errorf("%w: step %q was used before in this execution: a name is used once; give each step of a loop its own, such as fmt.Sprint(\"page \", i)", store.ErrInvalid, name)
	}
	b.used[name] = true
	for _, name := range names {
		if step, found := b.known[name]; found {
			return &step, nil
		}
	}
	return nil, b.full(name)
}

// full refuses a new step of a run that has as many as there may be. b.mu is held.
func (b *Book) full(name string) error {
	if len(b.known) < store.MaxSteps {
		return nil
	}
	return fmt.Errorf("%w: step %q: the run has %d steps, the most there may be: continue in a run that this one enqueues", store.ErrInvalid, name, len(b.known))
}

// Sealed encodes a result for the store, and refuses what cannot be stored.
func (b *Book) Sealed(name string, value []byte) ([]byte, error) {
	return b.SealedWithin(name, value, store.MaxStepSize)
}

// SealedWithin is Sealed for a value that may have up to so many bytes.
func (b *Book) SealedWithin(name string, value []byte, most int) ([]byte, error) {
	text, err := b.x.Seal(name, value)
	if err == nil {
		err = storable.CheckJSON(text, most, store.MaxJSONDepth)
	}
	if err != nil {
		return nil, fmt.Errorf("step %q: %w: result: %w", name, store.ErrInvalid, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+len(text) > store.MaxStepsSize {
		return nil, fmt.Errorf("step %q: %w: the run's steps have %d bytes, and %d more are too many (%d): keep large values elsewhere, and their names here", name, store.ErrInvalid, b.bytes, len(text), store.MaxStepsSize)
	}
	return text, nil
}

// Record stores a step, and returns what is recorded, which is the step of an earlier execution if
// that was first.
func (b *Book) Record(ctx context.Context, step store.NewStep) (store.StepRecord, error) {
	verdict, err := b.recordSteadily(ctx, step)
	switch {
	case err != nil:
		return store.StepRecord{}, fmt.Errorf("step %q: %w", step.Name, err)
	case verdict == store.StepLost:
		return store.StepRecord{}, fmt.Errorf("step %q: %w", step.Name, lease.ErrLost)
	case verdict == store.StepLocked:
		return store.StepRecord{}, fmt.Errorf("step %q: %w: another transaction keeps the run locked, such as the handler's own after Guard, StepIn or CompleteIn", step.Name, store.ErrConflict)
	case verdict == store.StepKnown:
		return b.storedBefore(ctx, step.Name)
	}
	record := store.StepRecord{Name: step.Name, Kind: step.Kind, Tries: step.Tries, Took: step.Took, Value: step.Value, Error: step.Error, Code: step.Code}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keep(record)
	return record, nil
}

// storedBefore reads a step that another call has stored.
func (b *Book) storedBefore(ctx context.Context, name string) (store.StepRecord, error) {
	found, err := b.fetch(ctx)
	if err != nil {
		return store.StepRecord{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(found)
	step, stored := b.known[name]
	if !stored {
		return step, fmt.Errorf("step %q: it was stored, and is gone: %w", name, store.ErrConflict)
	}
	return step, nil
}

// steadily makes a call again while another transaction keeps the run locked.
func (b *Book) steadily(ctx context.Context, call func() error) error {
	pause := lockedPause
	for try := 1; ; try++ {
		err := call()
		if !errors.Is(err, store.ErrConflict) || try == lockedTries || ctx.Err() != nil {
			return err
		}
		b.host.Pause(ctx, pause)
		pause = min(2*pause, lockedLongest)
	}
}
