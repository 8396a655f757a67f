package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// EndSession records that a session has ended.
func (s *Store) EndSession(ctx context.Context, session, by string) error {
	if err := store.CheckSessionEnd(session, by); err != nil {
		return err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail("end session", err)
	}
	err := s.db.Repeat(ctx, func() error {
		return s.db.Queries(s.db.General).AuditSessionEnd(ctx, queries.AuditSessionEndParams{
			Actor: by, Kind: store.KindSession, Session: session, Action: rules.SessionEnds,
		})
	})
	if err != nil {
		return s.db.Fail("end session", err)
	}
	return nil
}
