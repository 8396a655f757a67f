package dashboard

import (
	"context"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// askForget asks whether a run is to execute a step again, and says what it would find.
func (d *dashboard) askForget(ctx context.Context, r *request) (view, error) {
	record, err := d.recordOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	list, err := r.do.Steps(ctx, record.ID)
	if err != nil {
		return view{}, err
	}
	name, path := r.form.Get("name"), "runs/"+record.ID.String()
	place := slices.IndexFunc(list.Steps, func(step operate.Step) bool { return step.Name == name })
	if place < 0 {
		return view{}, fmt.Errorf("run %s has recorded no step %.150q: %w", record.ID, name, store.ErrNotFound)
	}
	return r.ask("runs", question{To: path + "/forget", Title: fmt.Sprintf("Forget the step %q of this run of %s?", name, record.Job), Verb: "Forget",
		Back: path, Danger: true, Says: forgets(record.State, &list, place)}, "name", name), nil
}

// forgets says what follows from forgetting a step.
func forgets(state store.State, list *operate.StepList, place int) string {
	step := &list.Steps[place]
	says := fmt.Sprintf("It was recorded as %s. The next execution of the run executes it again.", step.Kind)
	if step.Tries > 0 {
		says = fmt.Sprintf("It was recorded as %s, after %s. The next execution of the run executes it again, with all of its attempts.", step.Kind, plural(int64(step.Tries), "failed try", "failed tries"))
	}
	if later := len(list.Steps) - place - 1; later > 0 {
		says += fmt.Sprintf(" The %s recorded after it keep what they have, even if they were executed because it had failed.", plural(int64(later), "step", "steps"))
	}
	switch {
	case state == store.Running:
		says += " The run is executing: that is refused until it has been put back or has ended."
	case state.Terminal():
		says += " The run has ended: retry it afterwards."
	default:
		says += " The run stays due when it is."
	}
	return says + " The audit log records it."
}

func (d *dashboard) forget(ctx context.Context, r *request) (view, error) {
	asked, err := d.askForget(ctx, r)
	if err != nil {
		return view{}, err
	}
	id, err := store.ParseRunID(r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	return r.answered(ctx, asked, "forget", "runs/"+id.String(), func(ctx context.Context) error {
		_, err := r.do.ForgetSteps(ctx, id, r.form.Get("name"))
		return err
	})
}
