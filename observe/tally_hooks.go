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
	began := time.Now()
	t.Begun(start.Run.Queue, start.Run.Job, began.Sub(start.Run.DueAt))
	return ctx, func(ExecuteEnd) { t.Ended(start.Run.Queue, start.Run.Job, time.Since(began)) }
}

func (t *Tally) runSettled(settled RunVerdict) {
	t.Settled(settled.Run.Queue, settled.Run.Job, settled.Outcome, settled.Verdict)
}

// Begun counts an execution that begins so long after it was due on this machine's
// clock. A worker calls it, Ended and Settled rather than the hooks: it costs no memory.
func (t *Tally) Begun(queue, job string, after time.Duration) {
	lane := t.lanes.of(laneKey{queue, job})
	lane.executing.Add(1)
	lane.wait.add(max(int64(after)+t.ahead.Load(), 0))
}

// Ended counts the end of an execution, whose handler took so long.
func (t *Tally) Ended(queue, job string, took time.Duration) {
	lane := t.lanes.of(laneKey{queue, job})
	lane.executing.Add(-1)
	lane.took.add(int64(took))
}

// Settled counts an outcome by what the store has answered to it.
func (t *Tally) Settled(queue, job string, outcome store.OutcomeKind, verdict store.Verdict) {
	lane := t.lanes.of(laneKey{queue, job})
	switch {
	case verdict == store.Rejected:
		lane.refused.Add(1)
	case outcome >= store.Success && outcome <= store.HandedBack:
		lane.outcomes[outcome].Add(1)
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
