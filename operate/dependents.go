package operate

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

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
