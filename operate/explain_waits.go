package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// openWaits are the waits of a run that is not due.
func (o *Operator) openWaits(ctx context.Context, f *store.Facts) ([]store.StepRecord, error) {
	if f.Run.State != store.Pending || !f.Run.DueAt.After(f.At) {
		return nil, nil
	}
	recorded, err := store.StepsOf(ctx, o.store, f.ID)
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
	release := Remedy{"release", RoleOperator, "start it without what it depends on", "runs release " + e.ID.String()}
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
				Remedy{"retry", RoleOperator, "retry that run", "runs retry " + link.Run.String()}, release)
		case link.Found:
			e.block(Blocker{Kind: BlockerDependency, Text: fmt.Sprintf("it depends on run %s of job %s, which is %s", link.Run, link.Job, link.State)}, detail, look, release)
		default:
			e.block(Blocker{Kind: BlockerDependency, Text: fmt.Sprintf("it depends on run %s, which was deleted", link.Run)}, detail, release)
		}
	}
}

// batchesOf are the batches among the ends that a run waits for. One that is gone is left out.
func (o *Operator) batchesOf(ctx context.Context, ends []store.Link) (batches []store.Batch, err error) {
	for i := range ends {
		if !ends[i].Batch {
			continue
		}
		b, err := o.store.Batch(ctx, ends[i].Run)
		if err != nil {
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// awaitsBatch says what of a batch a run waits for: that it is closed, or the ends of its
// members.
func (e *explaining) awaitsBatch(link *store.Link) {
	does := "it depends on"
	detail := map[string]any{"batch": link.Run, "name": link.Job, "wants": link.Want}
	if link.Name != "" {
		detail["step"], does = link.Name, fmt.Sprintf("in its step %q it waits for", link.Name)
	}
	batch := e.batchNamed(link.Run)
	if batch == nil {
		e.block(Blocker{Kind: BlockerBatch, Text: fmt.Sprintf("%s batch %s, which is gone", does, link.Run)}, detail)
		return
	}
	counts := batch.Counts
	detail["state"], detail["counts"], detail["closed"] = batch.State, counts, batch.Closed
	look := Remedy{"show", RoleViewer, "see the members of that batch that have failed", "batches show " + link.Run.String()}
	if counts.Dead > 0 && link.Want == store.WantSucceeded {
		look = Remedy{"retry", RoleOperator, "retry the dead members of that batch", "batches retry " + link.Run.String()}
	}
	text := fmt.Sprintf("%s batch %q (%s): ", does, batch.Name, link.Run)
	if !batch.Closed && counts.Unfinished() == 0 {
		e.block(Blocker{Kind: BlockerBatchOpen, Text: text + "it is open" + e.openUntil(batch) + ", and none of its members is unfinished",
			Since: &batch.CreatedAt}, detail, closing(batch))
		return
	}
	text += fmt.Sprintf("%d of %s unfinished", counts.Unfinished(), counted(store.Count{N: counts.Members}, "member", "members"))
	if counts.Failed() > 0 {
		text += fmt.Sprintf(", %d dead, %d cancelled", counts.Dead, counts.Cancelled)
	}
	e.block(Blocker{Kind: BlockerBatch, Text: text, Since: &batch.CreatedAt}, detail, look)
	if !batch.Closed {
		e.block(Blocker{Kind: BlockerBatchOpen, Text: fmt.Sprintf("batch %q is open%s", batch.Name, e.openUntil(batch)), Since: &batch.CreatedAt},
			map[string]any{"batch": link.Run, "owner": batch.Owner, "open_until": batch.OpenUntil}, closing(batch))
	}
}

// batchNamed is one of the batches that the run waits for.
func (e *explaining) batchNamed(id store.BatchID) *store.Batch {
	for i := range e.Batches {
		if e.Batches[i].ID == id {
			return &e.Batches[i]
		}
	}
	return nil
}

// openUntil says who closes a batch, and when it fails unless it was closed.
func (e *explaining) openUntil(batch *store.Batch) string {
	switch {
	case batch.Owner != nil:
		return fmt.Sprintf(" until run %s, which has made it, waits for it or ends", batch.Owner)
	case batch.OpenUntil != nil:
		return fmt.Sprintf(" until it is closed, and fails in %s if it is not", span(batch.OpenUntil.Sub(e.Facts.At)))
	default:
		return " until it is closed"
	}
}

// closing is what closes an open batch.
func closing(batch *store.Batch) Remedy {
	return Remedy{"close", RoleOperator, "close that batch, if it has all its runs", "batches close " + batch.ID.String()}
}
