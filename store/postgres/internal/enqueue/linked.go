package enqueue

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// enqueueLinked stores runs of which some depend on others, in a transaction of its own.
func (e *Enqueuer) enqueueLinked(ctx context.Context, runs []store.NewRun) ([]store.Receipt, error) {
	held := rules.Held(runs)
	set := numbers.PlacesOf(held)
	var receipts []store.Receipt
	var freed []store.LineID
	err := e.inTx(ctx, set, held, func(tx pgx.Tx) (err error) {
		receipts, freed, err = e.insertLinked(ctx, tx, nil, held, set)
		return err
	})
	if err != nil {
		return nil, e.db.Fail("enqueue", err)
	}
	e.wake.Enqueued()
	e.wake.HintDue(duesOf(held, set.Lanes))
	e.wake.HintFreed(freed, freed)
	e.noticed(ctx)
	return receipts, nil
}

// inTx stores runs in a transaction of its own, after it has found the numbers of their places, and
// again where one of those that it knew was wrong.
func (e *Enqueuer) inTx(ctx context.Context, set numbers.Places, runs []store.NewRun, insert func(tx pgx.Tx) error) error {
	try := func() error {
		if err := e.numbers.PlaceIDs(ctx, set, runs); err != nil { // now, while no connection is taken
			return err
		}
		return e.db.InAloofTx(ctx, insert)
	}
	err := e.db.Repeat(ctx, try)
	if conn.Code(err) == conn.NotNullViolation {
		e.numbers.ForgetLanes()
		err = e.db.Repeat(ctx, try)
	}
	return err
}

// insertLinked stores runs that Held has put off, what they wait for, and to which batches they
// belong. Holder is the run whose handler enqueues them; nil: they come from outside.
func (e *Enqueuer) insertLinked(
	ctx context.Context, to conn.Sender, holder *store.RunID, held []store.NewRun, set numbers.Places,
) ([]store.Receipt, []store.LineID, error) {
	if err := e.knowSources(ctx, to, rules.Sources(held)); err != nil {
		return nil, nil, err
	}
	joining, err := e.openBatches(ctx, to, holder, held)
	if err != nil {
		return nil, nil, err
	}
	receipts, freed, err := e.insertInto(ctx, to, held, set)
	if err == nil {
		err = e.join(ctx, to, held, joining, receipts)
	}
	if err != nil {
		return nil, nil, err
	}
	var waiters, sources, looks conn.UUIDs
	var wants, anyOfs []int16
	for i := range held {
		if receipts[i].Existing || len(held[i].DependsOn) == 0 {
			continue
		}
		looks = append(looks, held[i].ID)
		for _, edge := range rules.EdgesOf(&held[i]) {
			waiters, sources = append(waiters, edge.Waiter), append(sources, edge.Source)
			wants, anyOfs = append(wants, int16(edge.Want)), append(anyOfs, int16(edge.AnyOf)) //nolint:gosec // at most MaxSources
		}
	}
	if len(looks) == 0 {
		return receipts, freed, nil
	}
	b := e.db.NewBatch()
	b.Add(queries.AddEdges, looks, waiters, sources, wants, anyOfs)
	return receipts, freed, e.db.Send(ctx, to, b)
}

// knowSources refuses sources that do not exist.
func (e *Enqueuer) knowSources(ctx context.Context, to conn.Sender, sources []store.RunID) error {
	if len(sources) == 0 {
		return nil
	}
	unknown, err := e.unknown(ctx, to, sources)
	if err == nil && len(unknown) > 0 {
		err = rules.UnknownSource(unknown[0])
	}
	return err
}

// unknown returns those of the ids that no run has.
func (e *Enqueuer) unknown(ctx context.Context, to conn.Sender, ids conn.UUIDs) (unknown []uuid.UUID, err error) {
	b := e.db.Begin(ctx, to)
	b.Add(queries.UnknownSources, ids).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { unknown = append(unknown, id) })
	})
	return unknown, e.db.Send(ctx, to, b)
}

// noticed has this process or a worker look at new dependents.
func (e *Enqueuer) noticed(ctx context.Context) {
	_ = e.wake.Publish(ctx, store.Signal{Kind: store.NoticesLeft})
}
