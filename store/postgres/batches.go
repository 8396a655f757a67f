package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Batch returns a batch; see store.Batches.
func (s *Store) Batch(ctx context.Context, id store.BatchID) (store.Batch, error) {
	return s.batches.Of(ctx, id)
}

// Batches lists batches, newest first; see store.Batches.
func (s *Store) Batches(ctx context.Context, filter store.BatchFilter) ([]store.Batch, error) {
	return s.batches.Page(ctx, &filter)
}

// Members returns members of a batch; see store.Batches.
func (s *Store) Members(ctx context.Context, id store.BatchID, after store.RunID, limit int) (store.MemberPage, error) {
	return s.batches.Members(ctx, id, after, limit)
}

// CloseBatch closes a batch; see store.Batches.
func (s *Store) CloseBatch(ctx context.Context, closing store.BatchClose) error {
	if err := s.batches.Close(ctx, closing); err != nil {
		return err
	}
	return s.lookAtBatch(ctx, closing.ID)
}

// CancelBatch has a batch cancelled; see store.Batches.
func (s *Store) CancelBatch(ctx context.Context, cancel store.BatchCancel) error {
	if err := s.batches.Cancel(ctx, &cancel); err != nil {
		return err
	}
	return s.lookAtBatch(ctx, cancel.ID)
}

// AwaitBatch closes the holder's batch, and has its end noted for a step; see store.BatchWaiter.
func (s *Store) AwaitBatch(ctx context.Context, holder store.Holder, id store.BatchID, name string) (store.Batch, error) {
	return s.batches.Await(ctx, holder, id, name)
}

// lookAtBatch has a worker look at a batch. When the signal does not get through, one does at its
// next look.
func (s *Store) lookAtBatch(ctx context.Context, id store.BatchID) error {
	_ = s.wake.Publish(ctx, store.Signal{Kind: store.NoticesLeft, Run: id})
	return nil
}
