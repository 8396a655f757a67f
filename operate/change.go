package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// ChangedRuns says what happened to each run that a change named, in order.
type ChangedRuns struct {
	Runs []store.ChangedRun `json:"runs"`
}

// Cancel cancels pending runs and requests the cancellation of running ones (see
// store.CancelRuns). Without a reason it is "cancelled by" the Actor. More than
// store.MaxCommandRuns runs are changed in several steps; after an error the
// answer has the runs of the steps that succeeded, and Cancel may be called again.
// Cancel, Retry and Delete of one run that does not exist return ErrNotFound; of
// several, the answer says which do not exist.
func (a *Actor) Cancel(ctx context.Context, reason string, runs ...store.RunID) (ChangedRuns, error) {
	return a.Change(ctx, store.RunCommand{Action: store.CancelRuns, Reason: reason, Runs: runs})
}

// Retry makes dead or cancelled runs pending again (see store.RetryRuns).
func (a *Actor) Retry(ctx context.Context, reason string, runs ...store.RunID) (ChangedRuns, error) {
	return a.Change(ctx, store.RunCommand{Action: store.RetryRuns, Reason: reason, Runs: runs})
}

// Delete removes runs that are not running (see store.DeleteRuns).
func (a *Actor) Delete(ctx context.Context, reason string, runs ...store.RunID) (ChangedRuns, error) {
	return a.Change(ctx, store.RunCommand{Action: store.DeleteRuns, Reason: reason, Runs: runs})
}

// Acknowledge takes dead runs out of the problems that are open (see
// store.AcknowledgeRuns).
func (a *Actor) Acknowledge(ctx context.Context, reason string, runs ...store.RunID) (ChangedRuns, error) {
	return a.Change(ctx, store.RunCommand{Action: store.AcknowledgeRuns, Reason: reason, Runs: runs})
}

// Change does what a command says with any number of runs, as Cancel, Retry, Delete and
// Acknowledge do. It is recorded as the Actor's, whatever the command says.
func (a *Actor) Change(ctx context.Context, command store.RunCommand) (ChangedRuns, error) {
	action, runs := command.Action, command.Runs
	command.By, command.Runs = a.by, nil
	if err := command.Check(); err != nil {
		return ChangedRuns{[]store.ChangedRun{}}, fmt.Errorf("%s runs: %w", action, err) // also where there is no run to refuse it for
	}
	changed := make([]store.ChangedRun, 0, len(runs))
	for start := 0; start < len(runs); start += store.MaxCommandRuns {
		command.Runs = runs[start:min(start+store.MaxCommandRuns, len(runs))]
		some, err := a.store.Operate(ctx, command)
		if err != nil {
			return ChangedRuns{changed}, err
		}
		changed = append(changed, some...)
		a.noteRuns(&command, some)
		for _, signal := range signalsOf(action, some) {
			_ = a.store.Publish(ctx, signal) // those whom it is for poll as well
		}
		a.hub.touch("runs")
	}
	if command.Bulk == nil && len(changed) == 1 && changed[0].Result == store.RunNotFound {
		return ChangedRuns{changed}, ChangedRuns{changed}.Refused(action)
	}
	return ChangedRuns{changed}, nil
}

// signalsOf are the signals for the workers that execute runs whose cancellation was
// requested, and for those who wait for runs that have ended.
func signalsOf(action store.RunAction, changed []store.ChangedRun) (signals []store.Signal) {
	requested := false
	for _, c := range changed {
		requested = requested || c.Result == store.CancelRequested
		if c.Result == store.RunChanged && (action == store.CancelRuns || action == store.DeleteRuns) {
			signals = append(signals, store.Signal{Kind: store.RunEnded, Run: c.ID})
		}
	}
	if requested {
		signals = append(signals, store.Signal{Kind: store.CancelsRequested})
	}
	return signals
}

// Refused returns an error when the change was not made to every run: ErrNotFound
// with the runs that do not exist, or else ErrConflict with the runs whose state
// does not allow it, each with its reason.
func (c ChangedRuns) Refused(action store.RunAction) error {
	var missing, refused []string
	for _, run := range c.Runs {
		switch run.Result {
		case store.RunNotFound:
			missing = append(missing, run.ID.String())
		case store.RunConflict:
			refused = append(refused, conflict(run))
		case store.RunLocked:
			refused = append(refused, fmt.Sprintf("%s is locked by another transaction", run.ID))
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%s: run %s: %w", action, strings.Join(missing, ", "), store.ErrNotFound)
	case len(refused) > 0:
		return fmt.Errorf("%s: %s: %w", action, strings.Join(refused, ", "), store.ErrConflict)
	default:
		return nil
	}
}

// conflict says why a run could not be changed.
func conflict(c store.ChangedRun) string {
	if c.Key != "" {
		return fmt.Sprintf("the key %q of %s belongs to run %s", c.Key, c.ID, c.KeyHolder)
	}
	return fmt.Sprintf("%s is %v", c.ID, c.State)
}
