package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// openWaits are the waits of a run that is not due.
func (o *Operator) openWaits(ctx context.Context, f *store.Facts) ([]store.StepRecord, error) {
	if f.Run.State != store.Pending || !f.Run.DueAt.After(f.At) {
		return nil, nil
	}
	recorded, err := o.store.Steps(ctx, f.ID)
	if err != nil {
		return nil, err
	}
	recorded.Now = f.At
	return waitsOf(f.Run, &recorded), nil
}

// waits says in which sleep a run is, and for which inputs it waits. Of several, the one that is
// over first has the run executed again.
func (e *explaining) waits() {
	var due *time.Time
	for i := range e.Waits {
		if !e.Waits[i].Until.IsZero() {
			due = &e.Facts.Run.DueAt
		}
	}
	for i := range e.Waits {
		wait := &e.Waits[i]
		if wait.Kind == store.StepSleep {
			e.block(Blocker{Kind: BlockerAsleep, Text: fmt.Sprintf("it sleeps in its step %q: that is over in %s", wait.Name, span(wait.Until.Sub(e.Facts.At))),
				Since: &wait.At, EndsAt: due}, map[string]any{"step": wait.Name, "until": wait.Until})
			continue
		}
		e.block(Blocker{Kind: BlockerInput, Text: fmt.Sprintf("it waits for the input %q%s", wait.Name, e.deadline(wait)), Since: &wait.At, EndsAt: due},
			map[string]any{"input": wait.Name, "until": someInstant(wait.Until)},
			Remedy{"send", RoleOperator, "send it its input", sendCommand(e.ID, wait.Name)})
	}
}

// deadline says how long a run waits for an input at most.
func (e *explaining) deadline(wait *store.StepRecord) string {
	if wait.Until.IsZero() {
		return ", however long that takes"
	}
	return ", at most for another " + span(wait.Until.Sub(e.Facts.At))
}

// sendCommand is the command that sends a run an input.
func sendCommand(run store.RunID, name string) string {
	return "runs send " + run.String() + " " + shellWord(name) + " --value JSON"
}

// mostEnds is how many ends that a run waits for are explained; the first suffice to act.
const mostEnds = 20

// openEnds are the ends of other runs that a run waits for which is not due.
func (o *Operator) openEnds(ctx context.Context, f *store.Facts) (ends []store.Link, err error) {
	if f.Run.State != store.Pending || !f.Run.DueAt.After(f.At) {
		return nil, nil
	}
	links, err := o.store.Links(ctx, f.ID)
	if err != nil {
		return nil, err
	}
	for _, link := range links.WaitsFor {
		child := link.Name != "" && link.Found && !link.State.Terminal()
		dependency := link.Name == "" && !link.Met && f.Run.StartedAt == nil
		if (child || dependency) && len(ends) < mostEnds {
			ends = append(ends, link)
		}
	}
	return ends, nil
}

// awaitsEnds says for which other runs and batches a run waits, and what frees it.
func (e *explaining) awaitsEnds() {
	for i := range e.Ends {
		link := &e.Ends[i]
		if link.Batch {
			e.awaitsBatch(link)
			continue
		}
		detail := map[string]any{"run": link.Run, "job": link.Job, "state": link.State, "wants": link.Want}
		look := Remedy{"explain", RoleViewer, "see why that run has not ended", "explain " + link.Run.String()}
		switch {
		case link.Name != "":
			detail["step"] = link.Name
			e.block(Blocker{Kind: BlockerChild, Text: fmt.Sprintf("in its step %q it waits for its child %s of job %s, which is %s", link.Name, link.Run, link.Job, link.State)}, detail, look)
		case link.Found && link.State == store.Dead && link.Want == store.WantSucceeded:
			e.block(Blocker{Kind: BlockerDependency, Text: fmt.Sprintf("it depends on the success of run %s of job %s, which is dead", link.Run, link.Job)}, detail,
				Remedy{"retry", RoleOperator, "retry that run", "runs retry " + link.Run.String()})
		case link.Found:
			e.block(Blocker{Kind: BlockerDependency, Text: fmt.Sprintf("it depends on run %s of job %s, which is %s", link.Run, link.Job, link.State)}, detail, look)
		default:
			e.block(Blocker{Kind: BlockerDependency, Text: fmt.Sprintf("it depends on run %s, which was deleted", link.Run)}, detail)
		}
	}
}
