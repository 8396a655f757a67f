package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// stepsOf is an execution as its book of steps needs it.
type stepsOf struct{ x *execution }

// Holder names the run and the claim.
func (s stepsOf) Holder() store.Holder { return s.x.holder() }

// Over returns lease.ErrLost once the handler has returned.
func (s stepsOf) Over() error { return s.x.over() }

// Seal encodes the result of a step.
func (s stepsOf) Seal(name string, value []byte) ([]byte, error) {
	return s.x.sealNamed(StepPart, name, value)
}

// Unseal decodes the result of a step.
func (s stepsOf) Unseal(step *store.StepRecord) ([]byte, error) {
	return s.x.unsealNamed(StepPart, step.Name, step.Value)
}

// Again makes a call of the store as a checkpoint is stored: a short outage costs no attempt.
func (s stepsOf) Again(ctx context.Context, failure stepping.Failure, once func(context.Context) error) error {
	r := s.x.reporting()
	ctx, cancel := r.bounded(ctx, max(r.w.config.Terms.Duration, r.w.callTimeout()))
	defer cancel()
	return r.sendAgain(ctx, failure.Event, failure.Text, func(ctx context.Context) error {
		if s.x.over() != nil || r.leaseGone(ctx) {
			return lease.ErrLost
		}
		bounded, cancel := r.bounded(ctx, r.w.callTimeout())
		defer cancel()
		return once(bounded)
	})
}

// step returns the stored result of a step, or executes it and stores its result.
func (x *execution) step(ctx context.Context, name string, options []StepOption, do func(context.Context) ([]byte, error)) ([]byte, error) {
	policy := stepPolicy{}
	for _, option := range slices.Concat(x.stepOptions, options) {
		option(&policy)
	}
	known, err := x.book().Begin(ctx, name, policy.aliases...)
	if err != nil {
		return nil, err
	}
	fresh := store.NewStep{Holder: x.holder(), Name: name, Kind: store.StepDone}
	if known != nil {
		if known.Kind != store.StepTried {
			return x.resultOf(*known, name)
		}
		fresh.Name, fresh.Tries = known.Name, known.Tries
	}
	began := x.w.config.Elapsed()
	value, err := x.tryStep(ctx, policy, do)
	fresh.Took = x.w.config.Elapsed() - began
	if err != nil {
		return nil, x.stepFailed(ctx, fresh, policy, err)
	}
	if fresh.Value, err = x.book().Sealed(name, value); err != nil {
		return nil, err
	}
	record, err := x.book().Record(ctx, fresh)
	if err != nil {
		return nil, err
	}
	return x.resultOf(record, name)
}

// tryStep executes a step once.
func (x *execution) tryStep(ctx context.Context, policy stepPolicy, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if policy.timeout <= 0 {
		return do(ctx)
	}
	within, cancel := context.WithTimeoutCause(ctx, policy.timeout, ErrTimeout)
	defer cancel()
	value, err := do(within)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), ErrTimeout) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return value, err
}

// resultOf is what a recorded step gives to an execution.
func (x *execution) resultOf(step store.StepRecord, name string) ([]byte, error) {
	switch step.Kind {
	case store.StepDone:
		if step.Value == nil {
			return nil, nil
		}
		value, err := x.unsealNamed(StepPart, step.Name, step.Value)
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

// stepFailed decides what an error of a step means.
func (x *execution) stepFailed(ctx context.Context, fresh store.NewStep, policy stepPolicy, err error) error {
	asked := askedFor(err)
	unstorable := (*unstorableError)(nil)
	switch {
	case errors.As(err, &unstorable):
		return unstorable.error
	case ctx.Err() != nil, stepping.ParkedAt(err) != nil, Final(err): // interrupted; or of a step within it
		return err
	case asked != nil && asked.kind != store.Failure && asked.kind != store.Death:
		return err
	case policy.attempts == 0 && (asked == nil || asked.kind != store.Death):
		return err
	}
	fresh.Tries = min(fresh.Tries+1, store.MaxStepTries)
	fresh.Error, fresh.Code = storable.Text(errorText(err), store.MaxErrorSize), storable.Text(codeOf(err), store.MaxNoteSize)
	if fresh.Kind = store.StepTried; asked != nil && asked.kind == store.Death || fresh.Tries >= policy.attempts {
		fresh.Kind = store.StepFailed
	}
	record, failed := x.book().Record(ctx, fresh)
	if failed != nil {
		return failed
	}
	if record.Kind != store.StepTried {
		_, err := x.resultOf(record, fresh.Name)
		return err
	}
	delay := min(max(retryDelay(policy.retry, fresh.Tries, err), 0), store.MaxDelay)
	if asked != nil {
		delay = min(asked.after, store.MaxDelay)
	}
	return x.book().Park(ctx, fresh.Name, delay)
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

// stepIn is step in a caller's transaction.
func (x *execution) stepIn(ctx context.Context, tx Tx, name string, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckStepName(name); err != nil {
		return nil, fmt.Errorf("%w: step: %w", ErrInvalid, err)
	}
	if err := tx.Guard(ctx, x.holder()); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	known, found, err := tx.RecordedStep(ctx, x.run.ID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("step %q: %w", name, err)
	case found && known.Kind != store.StepTried:
		return x.resultOf(known, name)
	}
	began := x.w.config.Elapsed()
	value, err := do(ctx)
	if err != nil {
		return nil, err
	}
	fresh := store.NewStep{Holder: x.holder(), Name: name, Kind: store.StepDone, Took: x.w.config.Elapsed() - began}
	if fresh.Value, err = x.book().Sealed(name, value); err != nil {
		return nil, err
	}
	if err := tx.RecordStep(ctx, fresh); err != nil {
		return nil, fmt.Errorf("step %q: %w", name, err)
	}
	return value, nil
}

// charged is the run with the attempts that its stretch of life has been charged with: a wait that
// this execution has recorded began a new one.
func (x *execution) charged() *store.ClaimedRun {
	if !x.begunBook().Stretched() {
		return x.run
	}
	run := *x.run
	run.Attempt = 1
	return &run
}
