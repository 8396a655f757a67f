package observe

import (
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// Hooks returns the hooks that fill the Tally. A worker has them already.
func (t *Tally) Hooks() Hooks {
	return Hooks{
		Enqueue: t.enqueue, Execute: t.execute, StoreCalled: t.storeCalled, RunSettled: t.runSettled, RunLost: t.runLost,
		Lock: lock.Hooks{Decided: t.lockDecided, Ended: t.lockEnded, Degraded: t.lockDegraded},
	}
}

// SetShared notes what a store has answered to a report. The time from due to begun is
// counted on the store's clock; until that is known, on this machine's.
func (t *Tally) SetShared(shared store.Shared) {
	t.ahead.Store(int64(time.Until(shared.Now)))
	t.alive.Store(int64(shared.Alive))
}

func (t *Tally) enqueue(ctx context.Context, start EnqueueStart) (context.Context, func(EnqueueEnd)) {
	return ctx, func(end EnqueueEnd) {
		if end.Err != nil {
			return
		}
		for i := range start.Runs {
			t.lanes.of(laneKey{start.Runs[i].Queue, start.Runs[i].Job}).enqueued.Add(1)
		}
	}
}

func (t *Tally) execute(ctx context.Context, start ExecuteStart) (context.Context, func(ExecuteEnd)) {
	lane, began := t.lanes.of(laneKey{start.Run.Queue, start.Run.Job}), time.Now()
	lane.executing.Add(1)
	lane.wait.add(max(int64(began.Sub(start.Run.DueAt))+t.ahead.Load(), 0))
	return ctx, func(ExecuteEnd) {
		lane.executing.Add(-1)
		lane.took.add(int64(time.Since(began)))
	}
}

func (t *Tally) runSettled(settled RunVerdict) {
	lane := t.lanes.of(laneKey{settled.Run.Queue, settled.Run.Job})
	switch kind := settled.Outcome; {
	case settled.Verdict == store.Rejected:
		lane.refused.Add(1)
	case kind >= store.Success && kind <= store.HandedBack:
		lane.outcomes[kind].Add(1)
	}
}

// The kinds of loss that are counted apart.
var lossKinds = [...]LossKind{LeaseLost, HandlerStuck, WorkerCrashed} //nolint:gochecknoglobals // a constant table

func (t *Tally) runLost(loss RunLoss) {
	if i := slices.Index(lossKinds[:], loss.Kind); i >= 0 {
		t.losses[i].Add(1)
	}
	if loss.Kind == WorkerCrashed {
		t.lanes.of(laneKey{loss.Queue, loss.Job}).crashed.Add(1)
	}
}

func (t *Tally) storeCalled(call StoreCall) {
	t.calls.of(callKey{call.Verb, call.Err != nil}).add(int64(call.Took))
	if call.Err == nil && call.Verb == "claim" {
		t.claims.add(int64(call.Runs))
	}
}
