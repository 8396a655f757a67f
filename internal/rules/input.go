package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// SentInput is what a store found when it did not store an input.
type SentInput struct {
	Run    store.RunID
	Name   string
	Size   int         // of the value, bytes
	State  store.State // of the run
	Inputs int         // that the run has
	Bytes  int         // of their values

	Found  bool // there is an input of this name, or the mark that the run has given up
	GaveUp bool
	Same   bool // it is the same value
}

// RefuseInput says why an input was not stored; nil: the same value is there already.
func RefuseInput(sent SentInput) error {
	what := fmt.Sprintf("input %q of run %s", sent.Name, sent.Run)
	switch {
	case sent.Found && sent.GaveUp:
		return fmt.Errorf("%w: %s: the run has given up waiting for it", store.ErrConflict, what)
	case sent.Found && !sent.Same:
		return fmt.Errorf("%w: %s was sent before, with another value", store.ErrConflict, what)
	case sent.Found:
		return nil
	case sent.State.Terminal():
		return fmt.Errorf("%w: %s: the run has ended: it is %s", store.ErrConflict, what, sent.State)
	case sent.Inputs >= store.MaxInputs:
		return fmt.Errorf("%w: %s: the run has %d inputs, the most there may be", store.ErrInvalid, what, sent.Inputs)
	case sent.Bytes+sent.Size > store.MaxStepsSize:
		return fmt.Errorf("%w: %s: the run's inputs have %d bytes; with %d more they have more than %d", store.ErrInvalid, what, sent.Bytes, sent.Size, store.MaxStepsSize)
	}
	return fmt.Errorf("%s could not be stored beside another one; send it again", what)
}

// NoticePause is how long a notice of an input rests that was put back for the nth time, from 0:
// its run is executing, or another transaction has locked it.
func NoticePause(tries int) time.Duration {
	return min(10*time.Millisecond<<min(tries, 20), 5*time.Second)
}

// ForgetFailures says what the retry of a run forgets: the failures that were recorded, and the
// marks of having given up, if no other step was recorded later. What was built on a failure keeps
// it. It returns the names of the steps and of the marks.
func ForgetFailures(recorded *store.RunSteps) (steps, marks []string) {
	var builtOn time.Time
	for i := range recorded.Steps {
		if step := &recorded.Steps[i]; step.Kind != store.StepFailed && step.Kind != store.StepInput && step.At.After(builtOn) {
			builtOn = step.At
		}
	}
	for i := range recorded.Inputs {
		if input := &recorded.Inputs[i]; input.GaveUp && !builtOn.After(input.At) {
			marks = append(marks, input.Name)
		}
	}
	for i := range recorded.Steps {
		step := &recorded.Steps[i]
		if step.Kind == store.StepFailed && !builtOn.After(step.At) || step.Kind == store.StepInput && slices.Contains(marks, step.Name) {
			steps = append(steps, step.Name)
		}
	}
	return steps, marks
}

// StateForKey is the state of a run by which it is decided what an enqueue with its key does. A
// pending run that has recorded a step for its args, or was sent an input, is not given other
// args: it counts as one that is running.
func StateForKey(state store.State, begun bool) store.State {
	if begun && state == store.Pending {
		return store.Running
	}
	return state
}
