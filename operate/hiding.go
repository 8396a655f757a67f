package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// Hiding says what an Operator keeps from those for whom it reads.
type Hiding uint8

// What may be hidden. Tags, keys, metadata and names are always shown.
const (
	// HideArgs leaves out args, results, checkpoints and the values of steps and inputs, but for
	// how many bytes they have, and refuses to search in args.
	HideArgs Hiding = 1 << iota
	// HideTexts leaves out what handlers have written: errors, stacks, log lines and notes
	// of progress. It refuses to search in errors.
	HideTexts
)

// HiddenFrom is what a role may not see.
func HiddenFrom(role access.Role, sees access.Sees) (hides Hiding) {
	if !sees.SeesArgs(role) {
		hides |= HideArgs
	}
	if !sees.SeesTexts(role) {
		hides |= HideTexts
	}
	return hides
}

// ErrHidden refuses to search in what is hidden: the answer would say what it is.
var ErrHidden = errors.New("you may not search in what is hidden from you")

// Hiding returns the Operator for readers who may not see everything. It shares all that
// the Operator has. Whatever is read through it, and through its Actors, lacks what is to
// be hidden; what they change is not different.
func (o *Operator) Hiding(what Hiding) *Operator {
	return &Operator{shared: o.shared, hides: o.hides | what}
}

// show hides what is to be hidden of runs: by rule, and from those who read.
func (o *Operator) show(ctx context.Context, runs ...*store.Record) error {
	hidden, err := o.redactions(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		o.showBy(hidden, run)
	}
	return nil
}

func (o *Operator) showBy(by *redactions, run *store.Record) {
	rule := by.of(run.Job)
	run.Args, run.Result, run.Checkpoint = rule.Of(run.Args), rule.Of(run.Result), rule.Of(run.Checkpoint)
	if o.hides == 0 {
		return
	}
	hidden := &store.Hidden{}
	if o.hides&HideArgs != 0 {
		hidden.Args, hidden.Result, hidden.Checkpoint = len(run.Args), len(run.Result), len(run.Checkpoint)
		run.Args, run.Result, run.Checkpoint = nil, nil, nil
	}
	if o.hides&HideTexts != 0 {
		hidden.Texts = hideTexts(run)
	}
	run.Hidden = hidden
}

// hideTexts puts a mask in place of the texts of a run, and returns how many bytes they
// had.
func hideTexts(run *store.Record) (size int) {
	hide := func(text *string, shown *string) *string {
		if text == nil || *text == "" {
			return text
		}
		size += len(*text)
		return shown
	}
	mask := Mask
	run.Error = hide(run.Error, &mask)
	if run.Progress != nil && run.Progress.Note != "" {
		size += len(run.Progress.Note)
		shown := *run.Progress
		shown.Note = Mask
		run.Progress = &shown
	}
	run.Attempts = slices.Clone(run.Attempts)
	for i := range run.Attempts {
		a := &run.Attempts[i]
		a.Error, a.Stack, a.Log = hide(a.Error, &mask), hide(a.Stack, nil), hide(a.Log, nil)
	}
	return size
}

// Reveal returns one run with its attempts as Operator.Run does, and shows what a rule
// hides of it: args, result and checkpoint as they are stored. The audit log says to whom, and
// why, before anything is shown. A person who may not see everything is refused with ErrHidden.
func (a *Actor) Reveal(ctx context.Context, id store.RunID, reason string) (store.Record, error) {
	if a.hides != 0 {
		return store.Record{}, fmt.Errorf("%w: nor have it revealed", ErrHidden)
	}
	if err := a.store.Reveal(ctx, id, reason, a.by); err != nil {
		return store.Record{}, err
	}
	a.note(kindRun, id.String(), rules.Reveals, reason, 0)
	return a.inFull(ctx, id)
}

// RevealSteps is Reveal for a run with what it has recorded and was sent: for one entry of the
// audit log it returns both with nothing hidden.
func (a *Actor) RevealSteps(ctx context.Context, id store.RunID, reason string) (store.Record, StepList, error) {
	record, err := a.Reveal(ctx, id, reason)
	if err != nil {
		return record, StepList{}, err
	}
	recorded, err := store.StepsOf(ctx, a.store, id)
	if err != nil {
		return record, StepList{}, err
	}
	return record, a.listed(&record, &recorded, nil), nil
}

// showSchedules hides what is to be hidden of schedules.
func (o *Operator) showSchedules(ctx context.Context, records []store.ScheduleRecord) error {
	hidden, err := o.redactions(ctx)
	if err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		r.Args = hidden.of(r.Job).Of(r.Args)
		if o.hides&HideArgs != 0 {
			r.Hidden = &store.Hidden{Args: len(r.Args)}
			r.Args = nil
		}
	}
	return nil
}

// MayFind refuses with ErrHidden to search in what is hidden, as all do that take a filter.
func (o *Operator) MayFind(filter store.Filter) error {
	switch {
	case filter.Args != "" && o.hides&HideArgs != 0:
		return fmt.Errorf("%w: args", ErrHidden)
	case filter.Error != "" && o.hides&HideTexts != 0:
		return fmt.Errorf("%w: error", ErrHidden)
	default:
		return nil
	}
}

// mayCount is MayFind for a number of runs, which cannot be corrected by what a rule
// hides of each.
func (o *Operator) mayCount(ctx context.Context, filter *store.Filter) error {
	hidden, err := o.redactions(ctx)
	if err != nil {
		return err
	}
	if filter.Args != "" && hidden.any() {
		return fmt.Errorf("%w: values of args are hidden by a rule: runs that are found by their args can be listed, but not counted", store.ErrInvalid)
	}
	return o.MayFind(*filter)
}

// found reports whether a run matches in what a rule shows of it. Without this, a search
// for args would find out what is hidden.
func (r *redactions) found(run *store.Record, filter *store.Filter) bool {
	if filter.Args == "" || !r.any() {
		return true
	}
	args := r.of(run.Job).Of(run.Args)
	return slices.ContainsFunc(filter.ArgsSpellings(), func(text string) bool { return bytes.Contains(args, []byte(text)) })
}

// showFilter hides what others have searched for.
func (o *Operator) showFilter(filter *store.Filter) {
	if o.hides&HideArgs != 0 && filter.Args != "" {
		filter.Args = Mask
	}
	if o.hides&HideTexts != 0 && filter.Error != "" {
		filter.Error = Mask
	}
}

// showChanges hides in changes what others have searched for.
func (o *Operator) showChanges(changes []store.Change) {
	if o.hides == 0 {
		return
	}
	for i := range changes {
		if len(changes[i].Detail) > 0 {
			changes[i].Detail = o.shownDetail(changes[i].Detail)
		}
	}
}

func (o *Operator) shownDetail(text json.RawMessage) json.RawMessage {
	var detail map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&detail); err != nil {
		return nil
	}
	filter, _ := detail["filter"].(map[string]any)
	hidden := false
	hide := func(in map[string]any, name string, when Hiding) {
		if _, has := in[name]; has && o.hides&when != 0 {
			in[name], hidden = Mask, true
		}
	}
	hide(filter, "args", HideArgs)
	hide(filter, "error", HideTexts)
	if reason, _ := detail["reason"].(string); likenessIn(reason) {
		hide(detail, "reason", HideTexts)
	}
	if !hidden {
		return text
	}
	shown, _ := json.Marshal(detail) // it was read from JSON
	return shown
}
