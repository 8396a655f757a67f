package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// stepsView is what a run has recorded, was sent and waits for, on its page.
type stepsView struct {
	Waits   []operate.Wait
	Steps   []stepLine
	Inputs  []inputLine
	Earlier int // steps that are not shown
}

// stepLine is one step.
type stepLine struct {
	operate.Step

	Icon   string
	Time   string // that its last execution took
	Failed bool   // it can be forgotten here; what has succeeded is forgotten by the command
	Seen   jsonView
}

// inputLine is one input.
type inputLine struct {
	operate.Input

	Seen jsonView
}

// Bounds of what the page of a run shows of its steps, and of its inputs.
const (
	stepsMost  = 200
	valuesMost = 256 << 10 // bytes of their values
)

// stepsOf is what a page shows of steps: the latest of many.
func stepsOf(list *operate.StepList) *stepsView {
	if len(list.Steps)+len(list.Inputs)+len(list.Waits) == 0 {
		return nil
	}
	shown, left := &stepsView{Waits: list.Waits, Earlier: max(0, len(list.Steps)-stepsMost)}, valuesMost
	for _, step := range list.Steps[shown.Earlier:] {
		line := stepLine{Step: step, Icon: stepIcons[step.Kind], Failed: step.Kind == store.StepTried || step.Kind == store.StepFailed, Seen: valueOf(step.Value, step.Size, &left)}
		if step.Took > 0 {
			line.Time = brief(time.Duration(step.Took))
		}
		shown.Steps = append(shown.Steps, line)
	}
	for _, input := range list.Inputs[max(0, len(list.Inputs)-stepsMost):] {
		shown.Inputs = append(shown.Inputs, inputLine{input, valueOf(input.Value, input.Size, &left)})
	}
	return shown
}

// masks reports whether a rule hides something of steps, or of inputs.
func masks(list *operate.StepList) bool {
	return slices.ContainsFunc(list.Steps, func(step operate.Step) bool { return operate.ShowsMask(step.Value) }) ||
		slices.ContainsFunc(list.Inputs, func(input operate.Input) bool { return operate.ShowsMask(input.Value) })
}

var stepIcons = map[store.StepKind]string{ //nolint:gochecknoglobals // a constant table
	store.StepTried: "dead", store.StepDone: "succeeded", store.StepFailed: "dead", store.StepSleep: "pending", store.StepInput: "pending",
}

// valueOf is a value, or its size where it is hidden, or where the page has enough of them.
func valueOf(value []byte, size int, left *int) jsonView {
	if len(value) == 0 {
		return jsonOf(nil, size)
	}
	if *left -= len(value); *left < 0 {
		return jsonView{Size: bytesText(size), Cut: true}
	}
	return jsonOf(value, 0)
}

// askSend asks for the value of an input.
func (d *dashboard) askSend(ctx context.Context, r *request) (view, error) {
	record, err := d.recordOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	name, path := r.form.Get("name"), "runs/"+record.ID.String()
	if err := store.CheckStepName(name); err != nil {
		return view{}, fmt.Errorf("%w: input: %w", store.ErrInvalid, err)
	}
	return r.ask("runs", question{To: path + "/send", Title: fmt.Sprintf("Send the input %q to this run of %s", name, record.Job), Verb: "Send", Keep: "Not now", Back: path,
		Says: "The run gets the value, and continues if it waits for it. It keeps who has sent it. The first value of a name counts: no one can send another one later.",
		Rows: [][]input{{{Name: "value", Label: "Value", Kind: "long", Value: r.form.Get("value"), Note: "JSON"}}}}, "name", name), nil
}

func (d *dashboard) send(ctx context.Context, r *request) (view, error) {
	asked, err := d.askSend(ctx, r)
	if err != nil {
		return view{}, err
	}
	id, err := store.ParseRunID(r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	value := []byte(strings.TrimSpace(r.form.Get("value")))
	if err := store.CheckJSON(value); err != nil {
		return asked.again(fmt.Errorf("%w: value%w", store.ErrInvalid, err))
	}
	sent, err := r.do.Send(ctx, operate.InputOrder{Run: id, Name: r.form.Get("name"), Value: value})
	if err != nil {
		return asked.again(err)
	}
	if sent.Existing {
		return r.done("resend", "runs/"+id.String()), nil
	}
	return r.done("send", "runs/"+id.String()), nil
}
