package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Steps returns what a run has recorded and was sent.
func (s *Store) Steps(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]store.RunSteps, len(ids))
	for i, id := range ids {
		found[i].Now = s.now()
		if r, stored := s.runs[id]; stored {
			found[i].ExpiresAt, found[i].Steps, found[i].Inputs = r.expiresAt, copiedSteps(r.steps), r.inputsOf()
		}
	}
	return found, nil
}

func copiedSteps(steps []store.StepRecord) []store.StepRecord {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Value = bytes.Clone(steps[i].Value)
	}
	return steps
}

// step returns the recorded step of a name, or nil.
func (r *run) step(name string) *store.StepRecord {
	for i := range r.steps {
		if r.steps[i].Name == name {
			return &r.steps[i]
		}
	}
	return nil
}

// RecordSteps stores steps of runs that are running under their claims.
func (s *Store) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("record steps: %w", err)
	}
	for i := range steps {
		if err := steps[i].Check(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	verdicts := make([]store.StepVerdict, len(steps))
	for i := range steps {
		switch {
		case s.verdict(steps[i].Run, steps[i].Claim) != store.Applied:
			verdicts[i] = store.StepLost
		case s.runs[steps[i].Run].keepStep(&steps[i], s.now()):
			verdicts[i] = store.StepStored
		default:
			verdicts[i] = store.StepKnown
		}
	}
	return verdicts, nil
}

// keepStep stores a step, unless a result of its name is stored, and reports whether it did.
func (r *run) keepStep(n *store.NewStep, now time.Time) bool {
	step := store.StepRecord{Name: n.Name, Kind: n.Kind, Tries: n.Tries, At: now, Took: n.Took.Truncate(time.Microsecond), Error: n.Error, Code: n.Code}
	if len(n.Value) > 0 {
		step.Value = bytes.Clone(n.Value)
	}
	known := r.step(n.Name)
	if known != nil && !known.Kind.IsReplaced() {
		return false
	}
	if known != nil {
		step.Tries = max(step.Tries, known.Tries)
		r.dropSteps(func(k *store.StepRecord) bool { return k.Name == n.Name })
	}
	r.steps = append(r.steps, step)
	return true
}

// dropSteps deletes the steps that are picked, and returns how many.
func (r *run) dropSteps(pick func(*store.StepRecord) bool) int {
	before := len(r.steps)
	r.steps = slices.DeleteFunc(slices.Clone(r.steps), func(step store.StepRecord) bool { return pick(&step) })
	return before - len(r.steps)
}

// BeginWait records a wait, unless something is recorded under its name.
func (s *Store) BeginWait(ctx context.Context, wait store.NewWait) (store.RunSteps, error) {
	if err := ctx.Err(); err != nil {
		return store.RunSteps{}, fmt.Errorf("begin to wait: %w", err)
	}
	if err := wait.Check(); err != nil {
		return store.RunSteps{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdict(wait.Run, wait.Claim) != store.Applied {
		return store.RunSteps{}, fmt.Errorf("begin to wait: run %s: %w", wait.Run, lease.ErrLost)
	}
	now, r := s.now(), s.runs[wait.Run]
	step := store.StepRecord{Name: wait.Name, Kind: wait.Kind, Tries: wait.Children, At: now, Until: micro(wait.Until)}
	if wait.Until.IsZero() && (wait.For > 0 || wait.Kind == store.StepSleep) {
		step.Until = micro(now.Add(wait.For))
	}
	r.beginWait(step)
	found := store.RunSteps{Now: now, ExpiresAt: r.expiresAt, Steps: copiedSteps([]store.StepRecord{*r.step(wait.Name)})}
	if input := r.input(wait.Name); input != nil {
		found.Inputs = []store.Input{input.copied()}
	}
	return found, nil
}

// beginWait records a wait, unless something is recorded under its name.
func (r *run) beginWait(step store.StepRecord) {
	if r.step(step.Name) == nil {
		r.steps = append(r.steps, step)
		r.attempt, r.crashCount = 1, 0
	}
}

// ForgetSteps deletes recorded steps of a run that is not executing.
func (s *Store) ForgetSteps(ctx context.Context, id store.RunID, names []string, by string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("forget steps: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.runs[id]
	if !found {
		return 0, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
	}
	if r.state == store.Running {
		return 0, fmt.Errorf("forget steps: %w: run %s is executing", store.ErrConflict, id)
	}
	forgotten := r.forgetSteps(names, names)
	if forgotten > 0 {
		s.note(change{at: s.now(), kind: rules.KindRun, subject: id.String(), what: store.ForgetsSteps, by: by, detail: store.ForgetDetail(names)})
	}
	return forgotten, nil
}

// forgetSteps deletes steps, and marks of having given up.
func (r *run) forgetSteps(steps, marks []string) int {
	r.inputs = slices.DeleteFunc(slices.Clone(r.inputs), func(input sentInput) bool { return input.GaveUp && slices.Contains(marks, input.Name) })
	return r.dropSteps(func(step *store.StepRecord) bool { return slices.Contains(steps, step.Name) })
}

// forgetFailures deletes what a retry forgets.
func (r *run) forgetFailures() {
	steps, marks := rules.ForgetFailures(&store.RunSteps{Steps: r.steps, Inputs: r.inputsOf()})
	r.forgetSteps(steps, marks)
}

// hasBegun reports whether a pending run has recorded something for its args, or was sent an
// input: it is not given others.
func (r *run) hasBegun() bool { return len(r.steps)+len(r.inputs)+len(r.edges) > 0 }
