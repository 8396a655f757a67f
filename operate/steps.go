package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// StepList is what a run has recorded and was sent, as it is shown.
type StepList struct {
	Run    store.RunID `json:"run"`
	At     time.Time   `json:"at"`    // of the store's clock
	Steps  []Step      `json:"steps"` // in the order of recording
	Inputs []Input     `json:"inputs"`
	Waits  []Wait      `json:"waits"` // what a pending run waits for that is not due
}

// Step is one recorded step.
type Step struct {
	Name  string         `json:"name"`
	Kind  store.StepKind `json:"kind"`
	Tries int            `json:"tries"` // that have failed
	At    time.Time      `json:"at"`    // when it was recorded
	Took  store.Duration `json:"took"`  // by its last execution; 0: not known
	Until *time.Time     `json:"until"` // of a wait; nil: it has no end, or it is no wait
	// Value is the result; nil: there is none, or it is hidden.
	Value json.RawMessage `json:"value"`
	Size  int             `json:"size"` // of the value in bytes, also if it is hidden
	Error *string         `json:"error"`
	Code  *string         `json:"code"` // of the error, if it had one
}

// Input is what was sent to a run, or the mark that the run has given up waiting for it.
type Input struct {
	Name   string          `json:"name"`
	At     time.Time       `json:"at"`
	By     *string         `json:"by"`    // who sent it; nil: code
	Value  json.RawMessage `json:"value"` // nil: the run has given up, or it is hidden
	Size   int             `json:"size"`  // of the value in bytes, also if it is hidden
	GaveUp bool            `json:"gave_up"`
}

// Wait is something that a run waits for.
type Wait struct {
	Name  string         `json:"name"`
	Kind  store.StepKind `json:"kind"`  // StepSleep or StepInput
	Since time.Time      `json:"since"` // when it began
	Until *time.Time     `json:"until"` // nil: it has no end
}

// Steps returns what a run has recorded and was sent, or ErrNotFound. Values are hidden as
// results are, and errors as those of attempts.
func (o *Operator) Steps(ctx context.Context, id store.RunID) (StepList, error) {
	record, err := o.store.Run(ctx, id)
	if err != nil {
		return StepList{}, err
	}
	return o.StepsOf(ctx, &record)
}

// StepsOf is Steps for a run that was read already.
func (o *Operator) StepsOf(ctx context.Context, run *store.Record) (StepList, error) {
	recorded, err := o.store.Steps(ctx, run.ID)
	if err != nil {
		return StepList{}, err
	}
	rules, err := o.redactions(ctx)
	if err != nil {
		return StepList{}, err
	}
	return o.listed(run, &recorded, rules.of(run.Job)), nil
}

// listed is what is shown of steps under a rule.
func (o *Operator) listed(run *store.Record, recorded *store.RunSteps, rule *Redaction) StepList {
	list := StepList{Run: run.ID, At: recorded.Now, Steps: []Step{}, Inputs: []Input{}, Waits: []Wait{}}
	for i := range recorded.Steps {
		list.Steps = append(list.Steps, o.shownStep(rule, &recorded.Steps[i]))
	}
	for i := range recorded.Inputs {
		list.Inputs = append(list.Inputs, o.shownInput(rule, &recorded.Inputs[i]))
	}
	for _, wait := range waitsOf(run, recorded) {
		list.Waits = append(list.Waits, Wait{Name: wait.Name, Kind: wait.Kind, Since: wait.At, Until: someInstant(wait.Until)})
	}
	return list
}

func (o *Operator) shownStep(rule *Redaction, step *store.StepRecord) Step {
	shown := Step{Name: step.Name, Kind: step.Kind, Tries: step.Tries, At: step.At, Took: store.Duration(step.Took), Until: someInstant(step.Until),
		Error: someText(step.Error), Code: someText(step.Code)}
	shown.Value, shown.Size = o.shownValue(rule, step.Value)
	if o.hides&HideTexts != 0 {
		mask := Mask
		if shown.Code = nil; shown.Error != nil {
			shown.Error = &mask
		}
	}
	return shown
}

func (o *Operator) shownInput(rule *Redaction, input *store.Input) Input {
	shown := Input{Name: input.Name, At: input.At, By: someText(input.By), GaveUp: input.GaveUp}
	shown.Value, shown.Size = o.shownValue(rule, input.Value)
	return shown
}

// shownValue hides what is to be hidden of a value, and returns how many bytes it has.
func (o *Operator) shownValue(rule *Redaction, value []byte) (json.RawMessage, int) {
	shown := rule.Of(value)
	if len(shown) == 0 || o.hides&HideArgs != 0 {
		return nil, len(shown)
	}
	return shown, len(shown)
}

// waitsOf are the sleeps and the waits for inputs because of which a run is not due.
func waitsOf(run *store.Record, recorded *store.RunSteps) (waits []store.StepRecord) {
	if run.State != store.Pending || !run.DueAt.After(recorded.Now) {
		return nil
	}
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

func someText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func someInstant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Forgotten says how many steps were forgotten.
type Forgotten struct {
	Run   store.RunID `json:"run"`
	Steps int         `json:"steps"`
}

// ForgetSteps deletes recorded steps of a run that is not executing, and the marks that it has
// given up waiting for inputs of these names: its next execution does them again. A wait that is
// forgotten does not make the run due. It returns ErrConflict for a run that executes, and
// ErrNotFound when the run, or every one of the steps, is not there.
func (a *Actor) ForgetSteps(ctx context.Context, id store.RunID, names ...string) (Forgotten, error) {
	done := Forgotten{Run: id}
	if err := store.CheckActor(a.by); err != nil {
		return done, fmt.Errorf("forget steps: %w", err)
	}
	if len(names) == 0 || len(names) > store.MaxSteps {
		return done, fmt.Errorf("forget steps: %w: %d names: want 1 to %d", store.ErrInvalid, len(names), store.MaxSteps)
	}
	for _, name := range names {
		if err := store.CheckStepName(name); err != nil {
			return done, fmt.Errorf("forget steps: %w: %w", store.ErrInvalid, err)
		}
	}
	var err error
	if done.Steps, err = a.store.ForgetSteps(ctx, id, names, a.by); err != nil {
		return done, err
	}
	if done.Steps == 0 {
		return done, fmt.Errorf("forget steps: run %s has recorded no step of %s: %w", id, named(names), store.ErrNotFound)
	}
	a.pass(store.Change{Kind: kindRun, Subject: id.String(), Action: store.ForgetsSteps, Detail: store.ForgetDetail(names)})
	a.hub.touch("runs")
	return done, nil
}

// named lists the first of some names, quoted.
func named(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return some(quoted)
}
