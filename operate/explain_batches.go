package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// batchesOf are the batches among the ends that a run waits for. One that is gone is left out.
func (o *Operator) batchesOf(ctx context.Context, ends []store.Link) (batches []store.Batch, err error) {
	for i := range ends {
		if !ends[i].Batch {
			continue
		}
		b, err := o.store.Batch(ctx, ends[i].Run)
		if err != nil {
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// awaitsBatch says what of a batch a run waits for: that somebody closes it, or the ends of its
// members.
func (e *explaining) awaitsBatch(link *store.Link) {
	does := "it depends on"
	detail := map[string]any{"batch": link.Run, "name": link.Job, "wants": link.Want}
	if link.Name != "" {
		detail["step"], does = link.Name, fmt.Sprintf("in its step %q it waits for", link.Name)
	}
	batch := e.batchNamed(link.Run)
	if batch == nil {
		e.block(Blocker{Kind: BlockerBatch, Text: fmt.Sprintf("%s batch %s, which is gone", does, link.Run)}, detail)
		return
	}
	counts := batch.Counts
	detail["state"], detail["counts"], detail["closed"] = batch.State, counts, batch.Closed
	look := Remedy{"show", RoleViewer, "see the members of that batch that have failed", "batches show " + link.Run.String()}
	if counts.Dead > 0 && link.Want == store.WantSucceeded {
		look = Remedy{"retry", RoleOperator, "retry the dead members of that batch", "batches retry " + link.Run.String()}
	}
	text := fmt.Sprintf("%s batch %q (%s): ", does, batch.Name, link.Run)
	if !batch.Closed && counts.Unfinished() == 0 {
		e.block(Blocker{Kind: BlockerBatchOpen, Text: text + "it is open" + e.openUntil(batch) + ", and none of its members is unfinished",
			Since: &batch.CreatedAt}, detail, closing(batch))
		return
	}
	text += fmt.Sprintf("%d of %s unfinished", counts.Unfinished(), counted(store.Count{N: counts.Members}, "member", "members"))
	if counts.Failed() > 0 {
		text += fmt.Sprintf(", %d dead, %d cancelled", counts.Dead, counts.Cancelled)
	}
	e.block(Blocker{Kind: BlockerBatch, Text: text, Since: &batch.CreatedAt}, detail, look)
	if !batch.Closed {
		e.block(Blocker{Kind: BlockerBatchOpen, Text: fmt.Sprintf("batch %q is open%s", batch.Name, e.openUntil(batch)), Since: &batch.CreatedAt},
			map[string]any{"batch": link.Run, "owner": batch.Owner, "open_until": batch.OpenUntil}, closing(batch))
	}
}

// batchNamed is one of the batches that the run waits for.
func (e *explaining) batchNamed(id store.BatchID) *store.Batch {
	for i := range e.Batches {
		if e.Batches[i].ID == id {
			return &e.Batches[i]
		}
	}
	return nil
}

// openUntil says who closes a batch, and when it fails unless it was closed.
func (e *explaining) openUntil(batch *store.Batch) string {
	switch {
	case batch.Owner != nil:
		return fmt.Sprintf(" until run %s, which has made it, waits for it or ends", batch.Owner)
	case batch.OpenUntil != nil:
		return fmt.Sprintf(" until somebody closes it, or fails in %s", span(batch.OpenUntil.Sub(e.Facts.At)))
	default:
		return " until somebody closes it"
	}
}

// closing is what closes an open batch.
func closing(batch *store.Batch) Remedy {
	return Remedy{"close", RoleOperator, "close that batch, if it has all its runs", "batches close " + batch.ID.String()}
}
