package durablecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
)

type runsExplainVerb struct {
	ID   string `arg:"" help:"Id of the run, or its first 8 or more characters."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Run prints why a run is where it is. That it is not there is an answer.
func (v runsExplainVerb) Run(ctx context.Context, p *program) error {
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		e, err := o.Explain(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(e)
		}
		return p.printExplanation(&e)
	})
}

func (p *program) printExplanation(e *operate.Explanation) error {
	table := p.newTable()
	state := "not there"
	if e.State != nil {
		state = e.State.String()
	}
	table.row("run", e.Run.String())
	table.row("state", state)
	for i := range e.Blockers {
		table.row(string(e.Blockers[i].Kind), e.Blockers[i].Text)
	}
	switch {
	case e.Earliest == nil || e.State == nil:
	case e.Sure:
		table.row("earliest", instantOf(*e.Earliest, e.At))
	default:
		table.row("earliest", "not before "+instantOf(*e.Earliest, e.At))
	}
	if x := e.Execution; x != nil {
		p.printExecution(table, x, e.At)
	}
	for i := range e.Next {
		n := &e.Next[i]
		text := n.Text
		if n.Command != "" {
			text += ": " + p.name + " " + n.Command
		}
		table.row("→ "+n.Action, text)
	}
	return table.flush()
}

func (p *program) printExecution(t *table, x *operate.Execution, now time.Time) {
	if x.LastBeat != nil {
		t.row("last heartbeat", instantOf(*x.LastBeat, now))
	}
	if x.LeaseEnd != nil {
		t.row("lease ends", instantOf(*x.LeaseEnd, now))
	}
	if x.Deadline != nil {
		t.row("deadline", instantOf(*x.Deadline, now))
	}
	if x.Progress != nil {
		t.row("progress", fmt.Sprintf("%.4g %% %s (%s)", 100*x.Progress.Fraction, x.Progress.Note, ago(x.Progress.At, now)))
	}
}

func instantOf(t, now time.Time) string {
	return t.UTC().Format(time.RFC3339) + " (" + ago(t, now) + ")"
}
