package enqueue

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// inserter stores runs in a transaction.
type inserter func(context.Context, conn.Sender, []store.NewRun, numbers.Places) ([]store.Receipt, []store.LineID, error)

// linkedFor is insertLinked for a holder; nil: from outside.
func (e *Enqueuer) linkedFor(holder *store.RunID) inserter {
	return func(ctx context.Context, to conn.Sender, runs []store.NewRun, set numbers.Places) ([]store.Receipt, []store.LineID, error) {
		return e.insertLinked(ctx, to, holder, runs, set)
	}
}

// openBatches makes the batches that runs name and that are not there, and returns for each of the
// runs to which it will belong. Those that take no more runs, or do not exist, are refused. Until the
// transaction ends, no other call closes or cancels them.
func (e *Enqueuer) openBatches(ctx context.Context, to conn.Sender, holder *store.RunID, runs []store.NewRun) (joining []store.BatchID, err error) {
	named := rules.BatchesOf(runs)
	members := rules.AnyMember(runs)
	if len(named) == 0 && !members {
		return nil, nil
	}
	own, made, err := e.makeBatches(ctx, to, holder, named)
	if err != nil {
		return nil, err
	}
	known, err := e.shareBatches(ctx, to, named, own)
	if err != nil {
		return nil, err
	}
	for _, id := range made { // closed by this call, which may add to it
		known[id].Closed, known[id].Owner = false, nil
	}
	for i := range named {
		if known[named[i].ID] == nil {
			return nil, rules.UnknownBatch(named[i].ID)
		}
	}
	if !members {
		return nil, nil
	}
	joining = make([]store.BatchID, len(runs))
	var refused conn.UUIDs
	var refusal error
	for i := range runs {
		if runs[i].Batch == nil {
			continue
		}
		var adder rules.Adder
		if joining[i], adder, err = rules.Joins(holder, own, runs[i].Batch); err != nil {
			return nil, err
		}
		if err := rules.CheckAdding(known[joining[i]], holder, adder); err != nil {
			refused, refusal = append(refused, runs[i].ID), err
		}
	}
	if len(refused) > 0 { // one that is stored already is not added again
		fresh, err := e.unknown(ctx, to, refused)
		if err != nil || len(fresh) > 0 {
			return nil, errors.Join(refusal, err)
		}
	}
	return joining, nil
}

// makeBatches makes those of the batches that are not there, and returns them and the one that the
// holder belongs to.
func (e *Enqueuer) makeBatches(ctx context.Context, to conn.Sender, holder *store.RunID, named []store.NewBatch) (own store.BatchID, made conn.UUIDs, err error) {
	var ids conn.UUIDs
	var names []string
	var failFasts, owned []bool
	var openFors, withins []int64
	for i := range named {
		n := &named[i]
		ids, names = append(ids, n.ID), append(names, n.Name)
		failFasts, owned = append(failFasts, n.FailFast), append(owned, n.Owned && holder != nil)
		openFors, withins = append(openFors, conn.Micro(n.OpenFor)), append(withins, conn.Micro(n.EndsWithin))
	}
	b := e.db.Begin(ctx, to)
	owner := uuid.Nil
	if holder != nil {
		owner = *holder
		b.Add(queries.BatchOfRun, owner.String()).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(id uuid.UUID) { own = id })
		})
	}
	if len(ids) > 0 {
		b.Add(queries.MakeBatches, owner.String(), ids, names, failFasts, owned, openFors, withins).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(id uuid.UUID) { made = append(made, id) })
		})
	}
	if b.Len() == 0 {
		return own, nil, nil
	}
	return own, made, e.db.Send(ctx, to, b)
}

// shareBatches keeps batches from being closed or cancelled until the transaction ends.
func (e *Enqueuer) shareBatches(ctx context.Context, to conn.Sender, named []store.NewBatch, own store.BatchID) (known map[store.BatchID]*store.Batch, err error) {
	known = map[store.BatchID]*store.Batch{}
	var ids conn.UUIDs
	for i := range named {
		ids = append(ids, named[i].ID)
	}
	if own != uuid.Nil {
		ids = append(ids, own)
	}
	b := e.db.NewBatch()
	b.Add(queries.ShareBatches, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			batch := &store.Batch{}
			if err := rows.Scan(&batch.ID, &batch.Owner, &batch.Closed, &batch.Cancelled, &batch.Reason); err != nil {
				return err
			}
			known[batch.ID] = batch
		}
		return rows.Err()
	})
	return known, e.db.Send(ctx, to, b)
}

// join makes runs that were just stored members of their batches.
func (e *Enqueuer) join(ctx context.Context, to conn.Sender, runs []store.NewRun, joining []store.BatchID, receipts []store.Receipt) error {
	if joining == nil {
		return nil
	}
	var ids, batches conn.UUIDs
	var stored []bool
	owned := map[store.RunID]store.BatchID{}
	for i := range runs {
		if runs[i].Batch == nil {
			continue
		}
		ids, batches, stored = append(ids, runs[i].ID), append(batches, joining[i]), append(stored, !receipts[i].Existing)
		if runs[i].Batch.Owned {
			owned[runs[i].ID] = joining[i]
		}
	}
	var foreign error
	b := e.db.NewBatch()
	b.Add(queries.AddMembers, ids, batches, stored).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) {
			if batch, found := owned[id]; found {
				foreign = rules.NotItsMember(id, batch)
			}
		})
	})
	if err := e.db.Send(ctx, to, b); err != nil {
		return err
	}
	return foreign
}
