package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
)

// runsWaitVerb is the command runs wait.
type runsWaitVerb struct {
	ID      string        `arg:"" help:"Id of the run, or its first 8 or more characters."`
	Timeout time.Duration `help:"Give up after this time, such as 5m; 0: never." default:"0"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Run waits for the end of one run and prints it. The exit code is 0 when it has
// succeeded, 3 when it is dead or cancelled, and 4 after the timeout.
func (v runsWaitVerb) Run(ctx context.Context, p *program) error {
	if v.Timeout < 0 {
		return usage("--timeout %v: want 0 or more", v.Timeout)
	}
	return p.withRun(ctx, v.ID, func(ctx context.Context, o *operate.Actor, id durable.RunID) error {
		record, err := waitFor(ctx, o.Operator, id, v.Timeout)
		if err != nil {
			return err
		}
		if v.JSON {
			err = p.printJSON(record)
		} else {
			err = p.printRun(record, p.now(), latestTexts)
		}
		return errors.Join(err, record.Ended())
	})
}

// waitFor waits until a run has ended, for at most a time; zero: without limit.
func waitFor(ctx context.Context, o *operate.Operator, id durable.RunID, timeout time.Duration) (durable.Record, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("run %s has not ended within %v: %w", id, timeout, errTimedOut))
		defer cancel()
	}
	return o.Wait(ctx, id)
}
