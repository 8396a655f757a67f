package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// joining adds the runs of one call to their batches.
type joining struct {
	*change
	call  *call
	holds store.BatchID                  // the batch of which the holder is a member; the zero ID: none
	known map[store.BatchID]*store.Batch // those that were there before the call; nil: the call makes it
	added map[store.BatchID]int64        // members
}

// gather makes the batches that runs name, and adds those that were just stored.
func (c *change) gather(ctx context.Context, stored *call) error {
	j := joining{change: c, call: stored, known: map[store.BatchID]*store.Batch{}, added: map[store.BatchID]int64{}}
	for _, named := range rules.BatchesOf(stored.runs) {
		if err := j.make(ctx, &named); err != nil {
			return err
		}
	}
	if stored.holder != uuid.Nil {
		batch, err := c.FindMember(ctx, queries.FindMemberParams{RunID: stored.holder[:]})
		if unlessNone(err) != nil {
			return err
		}
		if err == nil {
			j.holds = store.BatchID(batch)
		}
	}
	for i := range stored.runs {
		if stored.runs[i].Batch == nil {
			continue
		}
		if err := j.add(ctx, &stored.runs[i], stored.receipts[i]); err != nil {
			return err
		}
	}
	for id, added := range j.added {
		if err := c.CountMembers(ctx, queries.CountMembersParams{Added: added, ID: id[:]}); err != nil {
			return err
		}
	}
	return nil
}

// make makes a batch unless it is there. The end of its owner is noted, as it closes the batch.
func (j *joining) make(ctx context.Context, named *store.NewBatch) error {
	known, err := findBatch(ctx, j.Queries, named.ID)
	if err == nil {
		j.known[named.ID] = &known
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) || named.Name == "" {
		return err
	}
	b := rules.BatchMade(named, j.holder(), instant(j.now))
	row := queries.InsertBatchParams{ID: b.ID[:], CreatedAt: j.now, Name: b.Name, IsClosed: number(b.Closed), FailFast: number(b.FailFast)}
	if b.OpenUntil != nil {
		row.OpenUntil = micros(*b.OpenUntil)
	}
	if b.EndsBy != nil {
		row.EndsBy = micros(*b.EndsBy)
	}
	if b.Owner != nil {
		row.Owner = b.Owner[:]
		if err := j.AddLink(ctx, queries.AddLinkParams{Link: &linkAwaited, ID: row.Owner}); err != nil {
			return err
		}
	}
	j.known[named.ID] = nil
	return j.InsertBatch(ctx, row)
}

// number is how a fact is stored.
func number(fact bool) int64 {
	if fact {
		return 1
	}
	return 0
}

// add adds a run to its batch, unless it was stored before.
func (j *joining) add(ctx context.Context, run *store.NewRun, receipt store.Receipt) error {
	id, adder, err := rules.Joins(j.holder(), j.holds, run.Batch)
	if err != nil {
		return err
	}
	if receipt.Existing && receipt.ID == run.ID {
		if !run.Batch.Owned {
			return nil
		}
		of, err := j.FindMember(ctx, queries.FindMemberParams{RunID: run.ID[:]})
		if errors.Is(err, sql.ErrNoRows) || err == nil && store.BatchID(of) != id {
			err = rules.NotItsMember(run.ID, id)
		}
		return err
	}
	b, found := j.known[id]
	if !found { // the holder's
		of, err := findBatch(ctx, j.Queries, id)
		if errors.Is(err, store.ErrNotFound) {
			err = rules.NoMember(j.call.holder)
		}
		if err != nil {
			return err
		}
		j.known[id], b = &of, &of
	}
	if b != nil {
		if err := rules.CheckAdding(b, j.holder(), adder); err != nil {
			return err
		}
	}
	if receipt.Existing {
		return nil
	}
	j.added[id]++
	return errors.Join(
		j.InsertMember(ctx, queries.InsertMemberParams{RunID: run.ID[:], Batch: id[:]}),
		j.AddLink(ctx, queries.AddLinkParams{Link: &linkMember, ID: run.ID[:]}),
	)
}

// holder is the run whose handler enqueues; nil: they come from outside.
func (j *joining) holder() *store.RunID {
	if j.call.holder == uuid.Nil {
		return nil
	}
	return &j.call.holder
}
