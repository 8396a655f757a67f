package durabletest

import (
	"context"
	"fmt"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

// BatchSource is what RequireBatch reads: a store.
type BatchSource interface {
	// Batch returns a batch, see store.Batches.
	Batch(ctx context.Context, id store.BatchID) (store.Batch, error)
}

// RequireBatch fails the test unless the batch is in the state, with these counts of its members,
// and returns it. The counts are those of this instant. That a batch has ended is decided when
// workers release what waits, so after Kit.RunDue it is.
func RequireBatch(t testing.TB, from BatchSource, id store.BatchID, state store.BatchState, counts store.BatchCounts) store.Batch {
	t.Helper()
	batch, err := from.Batch(context.WithoutCancel(t.Context()), id)
	if err != nil {
		t.Fatalf("batch: %v", err)
	}
	if batch.State != state || batch.Counts != counts {
		t.Fatalf("a batch is %s, want %s:\n  %s %q, %s, closed: %t", countsText(batch.State, batch.Counts), countsText(state, counts),
			batch.ID, batch.Name, batch.Reason, batch.Closed)
	}
	return batch
}

// countsText is the state of a batch, with the counts of its members.
func countsText(state store.BatchState, c store.BatchCounts) string {
	return fmt.Sprintf("%s with %d members, %d succeeded, %d dead, %d cancelled", state, c.Members, c.Succeeded, c.Dead, c.Cancelled)
}
