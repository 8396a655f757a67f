package enqueue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Rerun stores a run that is made after another one.
func (e *Enqueuer) Rerun(ctx context.Context, of store.RunID, run store.NewRun, by string) (store.Receipt, error) {
	if err := store.CheckRerun(run, by); err != nil {
		return store.Receipt{}, err
	}
	if err := e.schema.Usable(ctx); err != nil {
		return store.Receipt{}, e.db.Fail("rerun", err)
	}
	var stored []store.Receipt
	runs := []store.NewRun{run}
	insert := func() error {
		set := numbers.PlacesOf(runs)
		if err := e.numbers.PlaceIDs(ctx, set, runs); err != nil { // now, while no connection is taken
			return err
		}
		return conn.InTx(ctx, e.db.General, func(tx pgx.Tx) (err error) {
			b := e.db.Guarded(ctx)
			b.Add(queries.Idle)
			if err = e.db.Send(ctx, tx, b); err != nil {
				return err
			}
			if stored, _, err = e.insertInto(ctx, tx, runs, set); err != nil || stored[0].Existing {
				return err
			}
			if err := e.db.Queries(tx).KeepOccurrence(ctx, queries.KeepOccurrenceParams{Made: run.ID, Original: of}); err != nil {
				return err
			}
			return e.db.Queries(tx).AuditChange(ctx, queries.AuditChangeParams{
				Actor: by, Kind: rules.KindRun, Subject: of.String(), Action: rules.Reruns, Detail: string(store.RerunDetail(run.ID)),
			})
		})
	}
	err := e.db.Repeat(ctx, insert)
	if conn.Code(err) == conn.NotNullViolation { // a lane's number was not what it stood for
		e.numbers.ForgetLanes()
		err = e.db.Repeat(ctx, insert)
	}
	if err != nil {
		return store.Receipt{}, e.db.Fail("rerun", err)
	}
	e.wake.Hint() // of whatever lane or line
	return stored[0], nil
}
