package durablecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/operate"
)

// watchFlag is for verbs that print a state.
type watchFlag struct {
	Watch time.Duration `placeholder:"DURATION" help:"Print again after this time, such as 2s, until a signal."`
}

// shortestWatch keeps a typo from asking the database without a pause.
const shortestWatch = 100 * time.Millisecond

// watched is asOperator for work that prints a state, once, or again and again until a
// signal. A terminal is cleared each time.
func (f watchFlag) watched(ctx context.Context, p *program, work func(context.Context, *operate.Actor) error) error {
	if f.Watch == 0 {
		return p.asOperator(ctx, work)
	}
	if f.Watch < shortestWatch {
		return usage("--watch %v: want at least %v", f.Watch, shortestWatch)
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		_, terminal := p.terminal(p.stdout)
		for {
			if terminal {
				fmt.Fprint(p.stdout, "\x1b[H\x1b[2J")
			}
			if err := work(ctx, o); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(f.Watch):
			}
		}
	})
}
