package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/durable-worker/durable-worker/internal/rules"
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

// RetriedRuns is what RetryWithDependents has done.
type RetriedRuns struct {
	ChangedRuns

	// Left is how many more dependents were found that the failure has cancelled: a further call
	// continues with them.
	Left store.Count `json:"left"`
}

// mostWalked bounds the runs that RetryWithDependents looks at.
const mostWalked = 20_000

// RetryWithDependents retries a run, and all dependents that its failure has cancelled, directly or
// through others: they wait for their conditions again. Dependents that were cancelled for another
// reason stay cancelled. It changes at most store.MaxCommandRuns runs, the run first, in one
// transaction; see RetriedRuns.Left.
func (a *Actor) RetryWithDependents(ctx context.Context, reason string, run store.RunID) (RetriedRuns, error) {
	w := walk{store: a.store, seen: map[store.RunID]bool{run: true}, found: []store.RunID{run}, open: []store.RunID{run}}
	for len(w.open) > 0 && len(w.seen) < mostWalked {
		next := w.open[0]
		w.open = w.open[1:]
		if err := w.below(ctx, next); err != nil {
			return RetriedRuns{ChangedRuns: ChangedRuns{[]store.ChangedRun{}}}, err
		}
	}
	some := w.found[:min(len(w.found), store.MaxCommandRuns)]
	changed, err := a.Retry(ctx, reason, some...)
	return RetriedRuns{changed, store.Count{N: int64(len(w.found) - len(some)), AtLeast: len(w.open) > 0}}, err
}

// walk goes from a run to what waits for it.
type walk struct {
	store store.Linker
	seen  map[store.RunID]bool
	found []store.RunID // to be retried, sources before their dependents
	open  []store.RunID // whose dependents are still to be looked at
}

// below looks at the dependents of a run.
func (w *walk) below(ctx context.Context, source store.RunID) error {
	for after := (store.RunID{}); len(w.seen) < mostWalked; {
		waiters, err := w.store.Waiters(ctx, source, after)
		if err != nil {
			return fmt.Errorf("dependents of run %s: %w", source, err)
		}
		outcomes, err := w.store.Outcomes(ctx, waiters)
		if err != nil {
			return fmt.Errorf("dependents of run %s: %w", source, err)
		}
		for i := range outcomes {
			w.note(&outcomes[i])
		}
		if len(waiters) < store.MaxSources {
			return nil
		}
		after = waiters[len(waiters)-1]
	}
	w.open = append(w.open, source)
	return nil
}

// note has a dependent retried that was cancelled for the failure of a run that was seen. One that
// waits was retried before, and may have dependents that were not.
func (w *walk) note(dependent *store.RunOutcome) {
	if w.seen[dependent.ID] || !dependent.Found {
		return
	}
	by, cascaded := rules.CancelledBy(dependent.Reason)
	switch {
	case dependent.State == store.Cancelled && cascaded && w.seen[by]:
		w.found = append(w.found, dependent.ID)
	case dependent.State != store.Pending:
		return
	}
	w.seen[dependent.ID] = true
	w.open = append(w.open, dependent.ID)
}
