package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// stepping is what one execution knows of the run's steps and inputs.
type stepping struct {
	x    *execution
	root branch

	mu      sync.Mutex
	reading chan struct{} // closed when the read under way has ended; nil: none is
	read    bool
	readAt  time.Duration // on the worker's clock, when the store's was at now
	now     time.Time
	known   map[string]store.StepRecord
	inputs  map[string]store.Input
	used    map[string]bool // names that this execution has used
	bytes   int             // of the values of the known steps
	parks   []*parkError
	stretch bool // a wait was recorded for the first time: a new stretch of the run's life
}

// stepping returns the execution's steps, created on first use.
func (x *execution) stepping() *stepping {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.steps == nil {
		x.steps = &stepping{x: x, used: map[string]bool{}}
	}
	return x.steps
}

// open returns why nothing may happen any more in the branch of ctx: the handler has returned, or
// the branch is parked.
func (s *stepping) open(ctx context.Context) error {
	if err := s.x.over(); err != nil {
		return err
	}
	return s.branchOf(ctx).isClosed()
}

// open is stepping.open for calls that are no steps.
func (x *execution) open(ctx context.Context) error {
	x.mu.Lock()
	s := x.steps
	x.mu.Unlock()
	if s == nil {
		return x.over()
	}
	return s.open(ctx)
}

// isParked returns a park of any branch.
func (x *execution) isParked() error {
	x.mu.Lock()
	s := x.steps
	x.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parks) == 0 {
		return nil
	}
	return s.parks[0]
}

// park closes the branch of ctx.
func (s *stepping) park(ctx context.Context, p *parkError) error {
	s.mu.Lock()
	s.parks = append(s.parks, p)
	s.mu.Unlock()
	return s.branchOf(ctx).close(p)
}

// load reads what the run has recorded, once in an execution.
func (s *stepping) load(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.read {
			s.mu.Unlock()
			return nil
		}
		if reading := s.reading; reading != nil {
			s.mu.Unlock()
			select {
			case <-reading:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		done := make(chan struct{})
		s.reading = done
		s.mu.Unlock()
		found, err := s.fetch(ctx)
		s.mu.Lock()
		if s.reading = nil; err == nil {
			s.take(found)
		}
		s.mu.Unlock()
		close(done)
		if err != nil {
			return err
		}
	}
}

// fetch reads the steps. An outage costs no attempt, as for a checkpoint.
func (s *stepping) fetch(ctx context.Context) (found store.RunSteps, err error) {
	r := s.x.reporting()
	ctx, cancel := r.bounded(ctx, max(r.w.config.Terms.Duration, r.w.callTimeout()))
	defer cancel()
	err = r.sendAgain(ctx, "run.steps_not_read", "reading the steps of a run failed, will be retried", func(ctx context.Context) (err error) {
		ctx, cancel := r.bounded(ctx, r.w.callTimeout())
		defer cancel()
		found, err = r.w.store.Steps(ctx, s.x.run.ID)
		return err
	})
	if err != nil {
		return found, fmt.Errorf("read steps: %w", err)
	}
	return found, nil
}

// take keeps what was read. s.mu is held.
func (s *stepping) take(found store.RunSteps) {
	s.read, s.readAt, s.now = true, s.x.w.config.Elapsed(), found.Now
	s.known, s.inputs = make(map[string]store.StepRecord, len(found.Steps)), make(map[string]store.Input, len(found.Inputs))
	for _, step := range found.Steps {
		s.keep(step)
	}
	for _, input := range found.Inputs {
		s.inputs[input.Name] = input
	}
}

// keep takes note of a recorded step. s.mu is held.
func (s *stepping) keep(step store.StepRecord) {
	s.bytes += len(step.Value) - len(s.known[step.Name].Value)
	s.known[step.Name] = step
}

// storeNow is the time on the store's clock, roughly. s.mu is held.
func (s *stepping) storeNow() time.Time {
	return s.now.Add(s.x.w.config.Elapsed() - s.readAt)
}

// recorded returns what is recorded under a name; nil: nothing is.
func (s *stepping) recorded(ctx context.Context, name string) (*store.StepRecord, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if step, found := s.known[name]; found {
		return &step, nil
	}
	return nil, nil
}

// begin takes a name for this execution, and returns what is recorded under it or one of its
// aliases.
func (s *stepping) begin(ctx context.Context, name string, aliases []string) (*store.StepRecord, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	for _, name := range append([]string{name}, aliases...) {
		if err := store.CheckStepName(name); err != nil {
			return nil, fmt.Errorf("%w: step: %w", ErrInvalid, err)
		}
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[name] {
		return nil, fmt.Errorf("%w: step %q was used before in this execution: a name is used once; give each step of a loop its own, such as fmt.Sprint(\"page \", i)", ErrInvalid, name)
	}
	s.used[name] = true
	for _, name := range append([]string{name}, aliases...) {
		if step, found := s.known[name]; found {
			return &step, nil
		}
	}
	if len(s.known) >= store.MaxSteps {
		return nil, fmt.Errorf("%w: step %q: the run has %d steps, the most there may be: continue in a run that this one enqueues", ErrInvalid, name, len(s.known))
	}
	return nil, nil
}

// step returns the stored result of a step, or executes it and stores its result.
func (s *stepping) step(ctx context.Context, name string, options []StepOption, do func(context.Context) ([]byte, error)) ([]byte, error) {
	policy := stepPolicy{}
	for _, option := range slices.Concat(s.x.stepOptions, options) {
		option(&policy)
	}
	known, err := s.begin(ctx, name, policy.aliases)
	if err != nil {
		return nil, err
	}
	fresh := store.NewStep{Holder: s.x.holder(), Name: name, Kind: store.StepDone}
	if known != nil {
		if known.Kind != store.StepTried {
			return s.outcome(*known, name)
		}
		fresh.Name, fresh.Tries = known.Name, known.Tries
	}
	within, cancel := ctx, context.CancelFunc(func() {})
	if policy.timeout > 0 {
		within, cancel = context.WithTimeoutCause(ctx, policy.timeout, ErrTimeout)
	}
	began := s.x.w.config.Elapsed()
	value, err := do(within)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), ErrTimeout) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	cancel()
	fresh.Took = s.x.w.config.Elapsed() - began
	if err != nil {
		return nil, s.failed(ctx, &fresh, policy, err)
	}
	if fresh.Value, err = s.sealed(name, value); err != nil {
		return nil, err
	}
	return s.store(ctx, fresh, value)
}

// outcome is what a recorded step gives to an execution.
func (s *stepping) outcome(step store.StepRecord, name string) ([]byte, error) {
	switch step.Kind {
	case store.StepDone:
		if step.Value == nil {
			return nil, nil
		}
		value, err := s.x.unsealNamed(StepPart, step.Name, step.Value)
		if err != nil {
			return nil, fmt.Errorf("step %q: %w", name, err)
		}
		return value, nil
	case store.StepFailed:
		return nil, &StepError{Name: name, Attempts: step.Tries, Text: step.Error, Code: step.Code}
	default:
		return nil, fmt.Errorf("%w: step %q is stored as a wait (%s), not as a result: give it another name", ErrInvalid, name, step.Kind)
	}
}

// sealed encodes a result for the store, and refuses what cannot be stored.
func (s *stepping) sealed(name string, value []byte) ([]byte, error) {
	text, err := s.x.sealNamed(StepPart, name, value)
	if err == nil {
		err = storable.CheckJSON(text, store.MaxStepSize, store.MaxJSONDepth)
	}
	if err != nil {
		return nil, fmt.Errorf("step %q: %w: result: %w", name, ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+len(text) > store.MaxStepsSize {
		return nil, fmt.Errorf("step %q: %w: the run's steps have %d bytes, and %d more are too many (%d): keep large values elsewhere, and their names here", name, ErrInvalid, s.bytes, len(text), store.MaxStepsSize)
	}
	return text, nil
}

// failed decides what an error of a step means.
func (s *stepping) failed(ctx context.Context, fresh *store.NewStep, policy stepPolicy, err error) error {
	asked := askedFor(err)
	unstorable := (*unstorableError)(nil)
	switch {
	case errors.As(err, &unstorable):
		return unstorable.error
	case ctx.Err() != nil, parkedAt(err) != nil, Final(err): // interrupted; or of a step within it
		return err
	case asked != nil && asked.kind != store.Failure && asked.kind != store.Death:
		return err
	case policy.attempts == 0 && (asked == nil || asked.kind != store.Death):
		return err
	}
	if fresh.Tries < store.MaxStepTries {
		fresh.Tries++
	}
	fresh.Error, fresh.Code = storable.Text(errorText(err), store.MaxErrorSize), storable.Text(codeOf(err), store.MaxNoteSize)
	if asked != nil && asked.kind == store.Death || fresh.Tries >= policy.attempts {
		fresh.Kind = store.StepFailed
		_, err := s.store(ctx, *fresh, nil)
		return err
	}
	fresh.Kind = store.StepTried
	if _, err := s.store(ctx, *fresh, nil); err != nil {
		return err
	}
	delay := min(max(retryDelay(policy.retry, fresh.Tries, err), 0), store.MaxDelay)
	if asked != nil {
		delay = min(asked.after, store.MaxDelay)
	}
	return s.park(ctx, &parkError{name: fresh.Name, until: s.x.w.config.Elapsed() + delay})
}

// codeOf is the code of an error, if it has one.
func codeOf(err error) (code string) {
	defer func() {
		if recover() != nil { // a method of the user's own error
			code = ""
		}
	}()
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return ""
}

// store records a step, and returns what is stored, which is the value of an earlier execution if
// that was first.
func (s *stepping) store(ctx context.Context, fresh store.NewStep, clear []byte) ([]byte, error) {
	verdict, err := s.x.record(ctx, fresh)
	switch {
	case err != nil:
		return nil, fmt.Errorf("step %q: %w", fresh.Name, err)
	case verdict == store.StepLost:
		return nil, fmt.Errorf("step %q: %w", fresh.Name, lease.ErrLost)
	case verdict == store.StepLocked:
		return nil, fmt.Errorf("step %q: %w: another transaction keeps the run locked, such as the handler's own after Guard, StepIn or CompleteIn", fresh.Name, ErrConflict)
	case verdict == store.StepKnown:
		return s.storedBefore(ctx, fresh.Name)
	}
	step := store.StepRecord{Name: fresh.Name, Kind: fresh.Kind, Tries: fresh.Tries, Took: fresh.Took, Value: fresh.Value, Error: fresh.Error, Code: fresh.Code}
	s.mu.Lock()
	s.keep(step)
	s.mu.Unlock()
	switch fresh.Kind {
	case store.StepFailed:
		return s.outcome(step, fresh.Name)
	default:
		return clear, nil
	}
}

// storedBefore reads a step that another call has stored.
func (s *stepping) storedBefore(ctx context.Context, name string) ([]byte, error) {
	found, err := s.fetch(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.take(found)
	step, stored := s.known[name]
	s.mu.Unlock()
	if !stored {
		return nil, fmt.Errorf("step %q: it was stored, and is gone: %w", name, ErrConflict)
	}
	return s.outcome(step, name)
}

// stepIn is step in a caller's transaction.
func (s *stepping) stepIn(ctx context.Context, tx Tx, name string, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckStepName(name); err != nil {
		return nil, fmt.Errorf("%w: step: %w", ErrInvalid, err)
	}
	if err := tx.Guard(ctx, s.x.holder()); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	known, found, err := tx.RecordedStep(ctx, s.x.run.ID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("step %q: %w", name, err)
	case found && known.Kind != store.StepTried:
		return s.outcome(known, name)
	}
	began := s.x.w.config.Elapsed()
	value, err := do(ctx)
	if err != nil {
		return nil, err
	}
	fresh := store.NewStep{Holder: s.x.holder(), Name: name, Kind: store.StepDone, Took: s.x.w.config.Elapsed() - began}
	if fresh.Value, err = s.sealed(name, value); err != nil {
		return nil, err
	}
	if err := tx.RecordStep(ctx, fresh); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	return value, nil
}
