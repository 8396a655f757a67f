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
	if err := s.usable(ctx); err != nil {
		return s.fail("end session", err)
	}
	err := s.repeat(ctx, func() error {
		return s.queries(s.general).AuditSessionEnd(ctx, queries.AuditSessionEndParams{
			Actor: by, Kind: store.KindSession, Session: session, Action: rules.SessionEnds,
		})
	})
	if err != nil {
		return s.fail("end session", err)
	}
	return nil
}
