package durabletest

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Completing is what a test gives to a handler that ends its runs together with their
// effects, in place of postgres.Completing or sqlite.Completing:
//
//	orders := &Orders{complete: durabletest.Completing[pgx.Tx](kit.Store, nil), shipped: fake.MarkShipped}
//
// The run ends in a transaction of the memory store, under the same conditions as on a
// database: a worker that has lost the run gets lease.ErrLost. The handler's work receives
// tx as it is, which is neither committed nor rolled back, so let the work call a fake of your
// statements; nil is enough for a fake that ignores the transaction. The effects of a fake
// are not undone when work, or the completion after it, fails.
func Completing[T any](s *memory.Store, tx T) store.Completing[T] {
	return func(ctx context.Context, run store.Completer, work func(tx T) error) error {
		if err := work(tx); err != nil {
			return err
		}
		within := s.Begin()
		defer within.Rollback()
		if err := run.CompleteIn(ctx, within); err != nil {
			return err
		}
		return within.Commit()
	}
}

// Transacting is what a test gives to durable.StepTx, in place of postgres.Transacting or
// sqlite.Transacting. The step is recorded in a transaction of the memory store; work receives tx
// as it is, as with Completing.
func Transacting[T any](s *memory.Store, tx T) store.Transacting[T] {
	return func(ctx context.Context, work func(tx T, bound store.Tx) error) error {
		within := &notedTx{Tx: s.Begin()}
		defer within.Rollback()
		if err := work(tx, within); err != nil {
			return err
		}
		if err := within.Commit(); err != nil {
			return err
		}
		if w := workerOf(ctx); w != nil {
			return w.hasStored(ctx, within.steps...)
		}
		return nil
	}
}

// notedTx notes which steps a transaction stores.
type notedTx struct {
	*memory.Tx

	steps []string
}

// RecordStep notes the step.
func (n *notedTx) RecordStep(ctx context.Context, step store.NewStep) error {
	err := n.Tx.RecordStep(ctx, step)
	if err == nil {
		n.steps = append(n.steps, step.Name)
	}
	return err
}
