package enqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Deaths returns the oldest deaths of runs of the jobs; see store.Deaths.
func (e *Enqueuer) Deaths(ctx context.Context, jobs []string, limit int) (deaths []store.DeathRecord, err error) {
	if err := e.schema.Usable(ctx); err != nil {
		return nil, e.db.Fail("deaths", err)
	}
	b := e.db.NewBatch()
	b.Add(queries.ListDeaths, jobs, min(limit, store.MaxDeaths)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var death store.DeathRecord
			var age int64
			var args string
			if err := rows.Scan(&death.ID, &death.Run, &death.Job, &death.RanAs, &death.At, &age, &args, &death.Reason); err != nil {
				return err
			}
			death.At, death.Age, death.Args = death.At.UTC(), max(conn.FromMicro(age), 0), []byte(args)
			deaths = append(deaths, death)
		}
		return rows.Err()
	})
	if err := e.db.Send(ctx, e.db.Aloof(), b); err != nil {
		return nil, e.db.Fail("deaths", err)
	}
	return deaths, nil
}

// ForDeaths stores the runs of deaths that are still there; see store.Deaths.
func (e *Enqueuer) ForDeaths(ctx context.Context, deaths []store.DeathRun) (stored int, err error) {
	runs, err := store.CheckDeathRuns(deaths)
	if err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	if err := e.schema.Usable(ctx); err != nil {
		return 0, e.db.Fail("enqueue for deaths", err)
	}
	set := numbers.PlacesOf(runs)
	var freed []store.LineID
	insert := func() error {
		if err := e.numbers.PlaceIDs(ctx, set, runs); err != nil {
			return err
		}
		return e.db.InAloofTx(ctx, func(tx pgx.Tx) error {
			taken, err := e.takeDeaths(ctx, tx, deaths)
			if stored = len(taken); err != nil || stored == 0 {
				return err
			}
			_, freed, err = e.insertInto(ctx, tx, taken, set)
			return err
		})
	}
	err = e.db.Repeat(ctx, insert)
	if conn.Code(err) == conn.NotNullViolation {
		e.numbers.ForgetLanes()
		err = e.db.Repeat(ctx, insert)
	}
	if err != nil {
		return 0, e.db.Fail("enqueue for deaths", err)
	}
	if stored > 0 {
		e.wake.Enqueued()
		e.wake.HintDue(duesOf(runs, set.Lanes))
		e.wake.HintFreed(freed, freed)
	}
	return stored, nil
}

// takeDeaths removes deaths, and returns the runs of those that were there.
func (e *Enqueuer) takeDeaths(ctx context.Context, tx pgx.Tx, deaths []store.DeathRun) (runs []store.NewRun, err error) {
	ids := make([]int64, len(deaths))
	of := make(map[int64]store.NewRun, len(deaths))
	for i := range deaths {
		ids[i] = deaths[i].Death
		of[ids[i]] = deaths[i].Run
	}
	b := e.db.NewBatch()
	b.Add(queries.TakeDeaths, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			runs = append(runs, of[id])
		}
		return rows.Err()
	})
	return runs, e.db.Send(ctx, tx, b)
}
