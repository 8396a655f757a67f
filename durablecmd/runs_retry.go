package durablecmd

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// Run retries the runs that the flags name, or one with its dependents.
func (v runsRetryVerb) Run(ctx context.Context, p *program) error {
	if !v.WithDependents {
		return v.runsChangeVerb.Run(ctx, p)
	}
	if bulk, err := v.bulk(); err != nil {
		return err
	} else if bulk || len(v.ID) != 1 {
		return usage("--with-dependents: want the id of one run")
	}
	if err := checkIDs(v.ID...); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		ids, err := findIDs(ctx, o, v.ID)
		if err != nil {
			return err
		}
		retried, err := o.RetryWithDependents(ctx, v.Reason, ids[0])
		if err != nil {
			return err
		}
		if err := p.printRetried(retried, v.JSON); err != nil {
			return err
		}
		return retried.Refused(store.RetryRuns)
	})
}

func (p *program) printRetried(retried operate.RetriedRuns, asJSON bool) error {
	if asJSON {
		return p.printJSON(retried)
	}
	if err := p.printChanged(retried.ChangedRuns, false); err != nil || retried.Left.N == 0 {
		return err
	}
	_, err := fmt.Fprintf(p.stderr, "%s dependents are left: run the command again\n", number(retried.Left))
	return err
}
