package sqlite

import (
	"context"
	"fmt"
	"math"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// EndSession records that a session has ended.
func (s *Store) EndSession(ctx context.Context, session, by string) error {
	if err := store.CheckSessionEnd(session, by); err != nil {
		return err
	}
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		known, err := c.ListChangesOf(ctx, queries.ListChangesOfParams{Before: math.MaxInt64, Kind: store.KindSession, Subject: session, Actor: "", Action: "", Most: 1}) // empty: any; nil would find none
		if err != nil || len(known) > 0 {
			return err
		}
		return c.audit(ctx, store.KindSession, session, rules.SessionEnds, by, nil)
	})
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}
