package operate

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

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

// awaitsEnds says for which other runs a run waits, and what frees it.
func (e *explaining) awaitsEnds() {
	for i := range e.Ends {
		link := &e.Ends[i]
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
