package durablecmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/operate"
)

// limitsCheckVerb looks for limits that are not kept.
type limitsCheckVerb struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// errLimitFaults is what limits check ends with when it has found something.
var errLimitFaults = errors.New("limits are not kept")

// Run prints what is not as it has to be, and fails if there is anything.
func (v limitsCheckVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.CheckLimits(ctx)
		if err != nil {
			return err
		}
		if err := v.print(p, &list); err != nil || len(list.Faults) == 0 {
			return err
		}
		return fmt.Errorf("%w: %d %s", errLimitFaults, len(list.Faults), plural(int64(len(list.Faults)), "fault", "faults"))
	})
}

func (v limitsCheckVerb) print(p *program, list *operate.LimitFaults) error {
	if v.JSON {
		return p.printJSON(list)
	}
	if len(list.Faults) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no faults")
		return err
	}
	table := p.newTable()
	table.row("FAULT", "LIMIT", "KEY", "RUN", "WHAT")
	for i := range list.Faults {
		f := &list.Faults[i]
		run := "-"
		if f.Run != nil {
			run = f.Run.String()
		}
		table.row(string(f.Fault), orDash(&f.Limit), orDash(&f.Key), run, f.Text)
	}
	return table.flush()
}
