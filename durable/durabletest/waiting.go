package durabletest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// StepSource is what RequireWaiting reads: a store.
type StepSource interface {
	Source
	store.StepReader
}

// RequireWaiting fails the test unless the run waits now, in the sleep or for the input of this
// name, and returns the wait: its Until is when that ends. When it fails it says what the run
// does instead.
func RequireWaiting(t testing.TB, from StepSource, id durable.RunID, name string) store.StepRecord {
	t.Helper()
	record := RequireState(t, from, id, durable.Pending)
	recorded, err := store.StepsOf(context.WithoutCancel(t.Context()), from, id)
	if err != nil {
		t.Fatalf("steps: %v", err)
	}
	if !record.DueAt.After(recorded.Now) {
		t.Fatalf("a run does not wait in %q, it is due:\n  %s", name, describe(&record))
	}
	waits := openWaits(&recorded)
	for i := range waits {
		if waits[i].Name == name {
			return waits[i]
		}
	}
	t.Fatalf("a run does not wait in %q, it waits %s:\n  %s", name, described(waits), describe(&record))
	return store.StepRecord{}
}

// openWaits are the sleeps that are not over, and the inputs that have not come.
func openWaits(recorded *store.RunSteps) (waits []store.StepRecord) {
	answered := map[string]bool{}
	for i := range recorded.Inputs {
		answered[recorded.Inputs[i].Name] = true
	}
	for _, step := range recorded.Steps {
		open := step.Until.After(recorded.Now)
		if step.Kind == store.StepInput {
			open = (open || step.Until.IsZero()) && !answered[step.Name]
		}
		if open && step.Kind.IsWait() {
			waits = append(waits, step)
		}
	}
	return waits
}

// described says what a run waits for.
func described(waits []store.StepRecord) string {
	if len(waits) == 0 {
		return "in no step"
	}
	said := make([]string, 0, len(waits))
	for i := range waits {
		text := map[store.StepKind]string{store.StepSleep: "in the sleep", store.StepInput: "for the input"}[waits[i].Kind]
		text += fmt.Sprintf(" %q", waits[i].Name)
		if !waits[i].Until.IsZero() {
			text += " until " + waits[i].Until.UTC().Format(time.RFC3339)
		}
		said = append(said, text)
	}
	return strings.Join(said, ", ")
}
