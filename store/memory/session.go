package memory

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// EndSession records that a session has ended.
func (s *Store) EndSession(ctx context.Context, session, by string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	if err := store.CheckSessionEnd(session, by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changesOf(store.ChangeFilter{Kind: store.KindSession, Subject: session}, 1)) == 0 {
		s.note(change{at: s.now(), kind: store.KindSession, subject: session, what: rules.SessionEnds, by: by})
	}
	return nil
}
