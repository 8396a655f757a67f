package steps

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Outcomes returns how runs have ended; see store.Linker.
func (s *Steps) Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("outcomes", err)
	}
	found := map[uuid.UUID]store.RunOutcome{}
	b := s.db.HotAloof(ctx)
	b.Add(queries.OutcomesOf, conn.UUIDs(ids)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			outcome := store.RunOutcome{Found: true}
			var result string
			var ended *time.Time
			if err := rows.Scan(&outcome.ID, &outcome.Job, &outcome.State, &result, &outcome.Reason, &ended); err != nil {
				return err
			}
			if ended != nil {
				outcome.FinishedAt = ended.UTC()
			}
			if result != "" {
				outcome.Result = []byte(result)
			}
			found[outcome.ID] = outcome
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, s.db.Aloof(), b); err != nil {
		return nil, s.db.Fail("outcomes", err)
	}
	return rules.OutcomesInOrder(ids, found), nil
}

// Links returns what a run waits for, and who waits for it; see store.Linker.
func (s *Steps) Links(ctx context.Context, id store.RunID) (store.RunLinks, error) {
	var links store.RunLinks
	if err := s.schema.Usable(ctx); err != nil {
		return links, s.db.Fail("links", err)
	}
	b := s.db.Guarded(ctx)
	b.Add(queries.SourcesOf, id, store.MaxLinks).Query(scanLinks(&links.WaitsFor))
	b.Add(queries.BatchesFor, id, store.MaxLinks).Query(scanBatchLinks(&links.WaitsFor))
	b.Add(queries.WaitersFor, id, store.MaxLinks).Query(scanLinks(&links.WaitedFor))
	b.Add(queries.CountLinks, id, store.MaxLinksCounted).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&links.Sources.N, &links.Waiters.N); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	b.Add(queries.BatchOfRun, id).Query(func(rows pgx.Rows) error {
		links.Batch = nil
		return conn.ScanIDs(rows, func(batch uuid.UUID) { links.Batch = &batch })
	})
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return links, s.db.Fail("links", err)
	}
	links.WaitsFor = rules.LinksInOrder(links.WaitsFor)
	links.Sources.AtLeast, links.Waiters.AtLeast = links.Sources.N >= store.MaxLinksCounted, links.Waiters.N >= store.MaxLinksCounted
	return links, nil
}

// Holds returns the dead runs that hold dependents; see store.Linker.
func (s *Steps) Holds(ctx context.Context) ([]store.Hold, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("holds", err)
	}
	var holds []store.Hold
	b := s.db.NewBatch()
	b.Add(queries.Holds, store.MaxHoldsExamined, int16(store.WantSucceeded), store.MaxHeldCounted, store.MaxHolds).Query(func(rows pgx.Rows) error {
		holds = nil
		for rows.Next() {
			var hold store.Hold
			if err := rows.Scan(&hold.Run, &hold.Job, &hold.DeadSince, &hold.Dependents.N); err != nil {
				return err
			}
			hold.Dependents.AtLeast = hold.Dependents.N >= store.MaxHeldCounted
			holds = append(holds, hold)
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return nil, s.db.Fail("holds", err)
	}
	return holds, nil
}

func scanBatchLinks(into *[]store.Link) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			link := store.Link{Batch: true}
			var want rules.EdgeWant
			var anyOf, state int16
			var batch store.Batch
			if err := rows.Scan(&link.Run, &want, &anyOf, &link.Met, &link.Name, &link.Job, &state, &batch.Counts.Cancelled); err != nil {
				return err
			}
			link.Want, link.AnyOf, link.Found = want.Want(), int(anyOf), state >= 0
			if link.Found {
				batch.State = store.BatchState(state) //nolint:gosec // 0 to 3
				link.State = rules.BatchAsRun(&batch)
			}
			*into = append(*into, link)
		}
		return rows.Err()
	}
}

// Waiters returns the runs that wait for a run; see store.Linker.
func (s *Steps) Waiters(ctx context.Context, id, after store.RunID) (waiters []store.RunID, err error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("waiters", err)
	}
	b := s.db.NewBatch()
	b.Add(queries.WaitersOf, id, after, store.MaxSources).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { waiters = append(waiters, id) })
	})
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return nil, s.db.Fail("waiters", err)
	}
	return waiters, nil
}

func scanLinks(into *[]store.Link) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			var link store.Link
			var want rules.EdgeWant
			var anyOf, state int16
			if err := rows.Scan(&link.Run, &want, &anyOf, &link.Met, &link.Name, &link.Job, &state); err != nil {
				return err
			}
			link.Want, link.AnyOf, link.Found = want.Want(), int(anyOf), state >= 0
			if link.Found {
				link.State = store.State(state)
			}
			*into = append(*into, link)
		}
		return rows.Err()
	}
}
