package steps

import (
	"context"

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
			if err := rows.Scan(&outcome.ID, &outcome.Job, &outcome.State, &result, &outcome.Reason); err != nil {
				return err
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
	b.Add(queries.WaitersFor, id, store.MaxLinks).Query(scanLinks(&links.WaitedFor))
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return links, s.db.Fail("links", err)
	}
	return links, nil
}

func scanLinks(into *[]store.Link) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var link store.Link
			var anyOf, state int16
			if err := rows.Scan(&link.Run, &link.Want, &anyOf, &link.Met, &link.Name, &link.Job, &state); err != nil {
				return err
			}
			link.AnyOf, link.Found = int(anyOf), state >= 0
			if link.Found {
				link.State = store.State(state)
			}
			*into = append(*into, link)
		}
		return rows.Err()
	}
}
