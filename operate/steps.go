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
	recorded, err := store.StepsOf(ctx, o.store, run.ID)
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

// SendsInput is the action of Actor.Send in the audit log, and as Config.Changed has it.
const SendsInput = store.SendsInput

// InputOrder is an input to be sent to a run.
type InputOrder struct {
	// Run is the run that it is for. If it is the zero value, the input is for the unfinished
	// run that holds the unique key Key of the job Job.
	Run      store.RunID
	Job, Key string
	Name     string
	Value    json.RawMessage
}

// SentInput is the answer to one input.
type SentInput struct {
	Run      store.RunID `json:"run"` // that it was sent to
	Name     string      `json:"name"`
	Existing bool        `json:"existing"` // the same value was there already: nothing has changed
}

// Send sends an input to a run on behalf of the Actor, who is stored with it and written to the
// audit log. The first value of
// a name counts: the same again changes nothing, and another one is ErrConflict, as is one for a
// run that has ended, or has given up waiting for it. A value is stored as it is: the inputs of a
// job with a codec are sent by code that has the codec.
func (a *Actor) Send(ctx context.Context, order InputOrder) (SentInput, error) {
	if err := store.CheckActor(a.by); err != nil {
		return SentInput{}, fmt.Errorf("send: %w", err)
	}
	input := store.NewInput{Run: order.Run, Job: order.Job, Key: order.Key, Name: order.Name, Value: order.Value, By: a.by}
	if err := input.Check(); err != nil {
		return SentInput{}, err
	}
	if err := a.unmaskedInput(ctx, &order); err != nil {
		return SentInput{}, err
	}
	value, err := json.Marshal(order.Value) // as Job.Send writes it: the same value has the same digest
	if err != nil {
		return SentInput{}, fmt.Errorf("%w: value: %w", store.ErrInvalid, err)
	}
	input.Value, input.Digest = value, store.DigestOf(order.Name, value)
	receipt, err := a.client.Send(ctx, input)
	if err != nil {
		return SentInput{}, err
	}
	if !receipt.Existing {
		a.pass(store.Change{Kind: kindRun, Subject: receipt.Run.String(), Action: SendsInput, Detail: input.Detail()})
		a.hub.touch("runs")
	}
	return SentInput{Run: receipt.Run, Name: order.Name, Existing: receipt.Existing}, nil
}

// unmaskedInput refuses a value that was copied from what is shown with masks.
func (a *Actor) unmaskedInput(ctx context.Context, order *InputOrder) error {
	if !ShowsMask(order.Value) {
		return nil
	}
	job := order.Job
	if order.Key == "" {
		record, err := a.store.Run(ctx, order.Run)
		if err != nil {
			return err
		}
		job = record.Job
	}
	hidden, err := a.redactions(ctx)
	if err != nil {
		return err
	}
	if len(hidden.of(job).paths()) > 0 {
		return fmt.Errorf("%w: the value holds %s in place of values that are hidden: write the values", store.ErrInvalid, Mask)
	}
	return nil
}
