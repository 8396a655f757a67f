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
			t.Lane(start.Runs[i].Queue, start.Runs[i].Job).enqueued.Add(1)
		}
	}
}

func (t *Tally) execute(ctx context.Context, start ExecuteStart) (context.Context, func(ExecuteEnd)) {
	began, lane := time.Now(), t.Lane(start.Run.Queue, start.Run.Job)
	lane.Begun(began.Sub(start.Run.DueAt))
	return ctx, func(ExecuteEnd) { lane.Ended(time.Since(began)) }
}

func (t *Tally) runSettled(settled RunVerdict) {
	t.Lane(settled.Run.Queue, settled.Run.Job).Settled(settled.Outcome, settled.Verdict)
}

// Lane returns the counters of a job on a queue. A worker keeps them for the runs that
// it executes and calls their methods rather than the hooks: that costs no memory, and
// nothing is searched for.
func (t *Tally) Lane(queue, job string) *LaneCounts { return t.lanes.of(laneKey{queue, job}) }

// Begun counts an execution that begins so long after it was due on this machine's
// clock.
func (c *LaneCounts) Begun(after time.Duration) {
	c.executing.Add(1)
	c.wait.add(max(int64(after)+c.of.ahead.Load(), 0))
}

// Ended counts the end of an execution, whose handler took so long.
func (c *LaneCounts) Ended(took time.Duration) {
	c.executing.Add(-1)
	c.took.add(int64(took))
}

// Settled counts an outcome by what the store has answered to it.
func (c *LaneCounts) Settled(outcome store.OutcomeKind, verdict store.Verdict) {
	switch {
	case verdict == store.Rejected:
		c.refused.Add(1)
	case outcome.Settled():
		c.outcomes[outcome].Add(1)
	}
}

// The kinds of loss that are counted apart.
var lossKinds = [...]LossKind{LeaseLost, HandlerStuck, WorkerCrashed} //nolint:gochecknoglobals // a constant table

func (t *Tally) runLost(loss RunLoss) {
	if i := slices.Index(lossKinds[:], loss.Kind); i >= 0 {
		t.losses[i].Add(1)
	}
	if loss.Kind == WorkerCrashed {
		t.Lane(loss.Queue, loss.Job).crashed.Add(1)
	}
}

func (t *Tally) storeCalled(call StoreCall) {
	t.calls.of(callKey{call.Verb, call.Err != nil}).add(int64(call.Took))
	if call.Err == nil && call.Verb == "claim" {
		t.claims.add(int64(call.Runs))
	}
}
