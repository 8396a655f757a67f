package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Steps returns what runs have recorded and were sent; see store.Stepper.
func (s *Store) Steps(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	return s.steps.Of(ctx, ids)
}

// RecordSteps stores steps; see store.Stepper.
func (s *Store) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	return s.steps.Record(ctx, steps)
}

// BeginWait records a wait; see store.Stepper.
func (s *Store) BeginWait(ctx context.Context, wait store.NewWait) (store.RunSteps, error) {
	return s.steps.Begin(ctx, &wait)
}

// GiveUp ends the wait for an input; see store.Stepper.
func (s *Store) GiveUp(ctx context.Context, holder store.Holder, name string) (store.Input, error) {
	return s.steps.GiveUp(ctx, holder, name)
}

// ForgetSteps deletes steps; see store.Stepper.
func (s *Store) ForgetSteps(ctx context.Context, id store.RunID, names []string, by string) (int, error) {
	return s.steps.Forget(ctx, id, names, by)
}

// Send stores an input, and releases its run; see store.Sender.
func (s *Store) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	return s.steps.Send(ctx, &input)
}

// Release counts batches, and then makes runs due for which what they wait for has come; see
// store.Releaser.
func (s *Store) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	again, err := s.batches.Fold(ctx)
	if err != nil {
		return store.ReleaseResult{Next: -1}, err
	}
	result, err := s.steps.Release(ctx, request)
	if err == nil && again >= 0 && (result.Next < 0 || again < result.Next) {
		result.Next = again
	}
	return result, err
}

// releasing has workers woken for runs that a release has made due.
type releasing struct{ s *Store }

// Released wakes workers for runs of a lane.
func (r releasing) Released(lane store.LaneID, limited bool, runs int) {
	r.s.wake.HintDue([]store.Due{{Lane: lane, Limited: limited, Runs: runs}})
}

// Noticed has a worker release a run that was sent an input. When the signal does not get
// through, a worker finds the notice at its next look.
func (r releasing) Noticed(ctx context.Context, run store.RunID) {
	_ = r.s.wake.Publish(ctx, store.Signal{Kind: store.NoticesLeft, Run: run})
}

// Freed wakes workers for freed places.
func (r releasing) Freed(lines []store.LineID) { r.s.wake.HintFreed(lines, lines) }

// CancelRequested notifies the workers that execute runs to be cancelled. Where the signal is lost,
// they look for requests by themselves.
func (r releasing) CancelRequested(ctx context.Context) {
	_ = r.s.wake.Publish(ctx, store.Signal{Kind: store.CancelsRequested})
}

// Outcomes returns how runs have ended; see store.Linker.
func (s *Store) Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	return s.steps.Outcomes(ctx, ids)
}

// Links returns what a run waits for, and who waits for it; see store.Linker.
func (s *Store) Links(ctx context.Context, id store.RunID) (store.RunLinks, error) {
	return s.steps.Links(ctx, id)
}

// Holds returns the dead runs that hold dependents; see store.Linker.
func (s *Store) Holds(ctx context.Context) ([]store.Hold, error) { return s.steps.Holds(ctx) }

// RecordedStep returns a step as the transaction sees it; see store.TxStepper.
func (t *Tx) RecordedStep(ctx context.Context, id store.RunID, name string) (store.StepRecord, bool, error) {
	if err := t.store.schema.Usable(ctx); err != nil {
		return store.StepRecord{}, false, t.store.db.Fail("read step", err)
	}
	step, found, err := t.store.steps.In(ctx, t.binding, id, name)
	if err != nil {
		return step, false, t.fail("read step", err)
	}
	return step, found, nil
}

// RecordStep stores a step within the transaction; see store.TxStepper.
func (t *Tx) RecordStep(ctx context.Context, step store.NewStep) error {
	if err := step.Check(); err != nil {
		return err
	}
	if err := t.Guard(ctx, step.Holder); err != nil {
		return err
	}
	if err := t.store.steps.RecordIn(ctx, t.binding, &step); err != nil {
		return t.fail("record step", err)
	}
	return nil
}

// Send stores an input within the transaction; see store.Sender. A worker releases the run when
// it is committed.
func (t *Tx) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := t.store.schema.Usable(ctx); err != nil {
		return store.SendReceipt{}, t.store.db.Fail("send", err)
	}
	if input.Under != (store.Holder{}) {
		if err := t.Guard(ctx, input.Under); err != nil {
			return store.SendReceipt{}, err
		}
	}
	receipt, err := t.store.steps.SendIn(ctx, t.binding, &input)
	if err == nil && !receipt.Existing {
		err = t.store.wake.NoticeAtCommit(ctx, t.binding, receipt.Run)
	}
	if err != nil {
		return receipt, t.fail("send", err)
	}
	return receipt, nil
}

// Waiters returns the runs that wait for a run; see store.Linker.
func (s *Store) Waiters(ctx context.Context, id, after store.RunID) ([]store.RunID, error) {
	return s.steps.Waiters(ctx, id, after)
}
