package durable

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// DependsOn stores a run as a dependent of others: it is due when all the conditions are met, and
// not before. It holds no slot and no lease meanwhile. The sources may be runs of the same call of
// Enqueue, or runs that were stored before; one that does not exist is store.ErrNotFound, and
// nothing is stored. At most store.MaxSources sources.
//
// What was met stays met. A dependent of which a condition can never be met is cancelled, with the
// reason; a dead source holds its dependents that want its success, until it is retried, or deleted
// by retention. It goes with neither At nor After, nor with Replace or Debounce; at ExpiresAt a
// dependent that still waits is cancelled.
func DependsOn(conditions ...store.Condition) Option {
	return Option{"DependsOn", onlyRun, func(p *policy) { p.dependsOn = append(p.dependsOn[:len(p.dependsOn):len(p.dependsOn)], conditions...) }}
}

// OnSuccess is met when all of the runs have succeeded. One that is cancelled or deleted cancels
// the dependent; one that is dead holds it.
func OnSuccess(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantSucceeded, Runs: ids}
}

// OnEnd is met when all of the runs have ended, in whatever way.
func OnEnd(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantEnded, Runs: ids}
}

// OnFailure is met when one of the runs is dead, cancelled or deleted. When all of them have
// succeeded, the dependent is cancelled.
func OnFailure(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantFailed, Runs: ids}
}

// ResultOf returns the result of a run that this one depends on, decoded by its job's codec. A run
// that is dead or cancelled gives an *EndedError. Retention keeps a succeeded source until this run has
// ended.
func (j ReturningJob[A, R]) ResultOf(ctx context.Context, run AnyRun, id RunID) (result R, err error) {
	x := run.underWay()
	var outcomes []store.RunOutcome
	err = stepsOf{x}.Insist(ctx, func(ctx context.Context) (err error) {
		outcomes, err = x.w.store.Outcomes(ctx, []RunID{id})
		return err
	})
	switch {
	case err != nil:
		return result, fmt.Errorf("result of run %s: %w", id, err)
	case !outcomes[0].Found:
		return result, fmt.Errorf("result of run %s: %w", id, store.ErrNotFound)
	case !outcomes[0].State.Terminal():
		return result, fmt.Errorf("result of run %s: %w: it has not ended: it is %s", id, ErrConflict, outcomes[0].State)
	}
	record := Record{ID: id, Job: outcomes[0].Job, State: outcomes[0].State, Result: outcomes[0].Result}
	if outcomes[0].Reason != "" {
		record.Error = &outcomes[0].Reason
	}
	return j.typedResult(&record)
}
