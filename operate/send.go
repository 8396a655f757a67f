package operate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// SendsInput is the action of Actor.Send, as Config.Changed has it.
const SendsInput = "send_input"

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

// Send sends an input to a run on behalf of the Actor, who is stored with it. The first value of
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
		detail, _ := json.Marshal(map[string]any{"input": order.Name, "size": len(value)}) // a text and a number always can be
		a.pass(store.Change{Kind: kindRun, Subject: receipt.Run.String(), Action: SendsInput, Detail: detail})
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
