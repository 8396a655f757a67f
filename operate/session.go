package operate

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// What is remembered of sessions, so that not each request asks the store.
const (
	sessionFor   = time.Second // that a session had not ended
	sessionsMost = 10_000
)

// sessions remembers what the store has said of sessions.
type sessions struct {
	mu    sync.Mutex
	known map[string]sessionState
}

// sessionState is what is known of a session.
type sessionState struct {
	ended bool          // for good
	at    time.Duration // when the store said so, as elapsed time
}

// EndSession ends a session of a person at the API and the pages, in all processes. The audit
// log records it; by is who ends it.
func (o *Operator) EndSession(ctx context.Context, session, by string) error {
	if err := o.store.EndSession(ctx, session, by); err != nil {
		return err
	}
	o.sessions.note(session, true)
	return nil
}

// SessionEnded reports whether a session was ended, as the store knew at most a second ago.
func (o *Operator) SessionEnded(ctx context.Context, session string) (bool, error) {
	if ended, known := o.sessions.look(session); known {
		return ended, nil
	}
	page, err := o.store.Changes(ctx, store.ChangeFilter{Kind: store.KindSession, Subject: session, Limit: 1})
	if err != nil {
		return false, err
	}
	ended := len(page.Changes) > 0
	o.sessions.note(session, ended)
	return ended, nil
}

// look returns what is known of a session.
func (s *sessions) look(session string) (ended, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, known := s.known[session]
	return state.ended, known && (state.ended || lease.Elapsed()-state.at < sessionFor)
}

// note remembers what the store has said. An end that is known stays known: the answer to an
// earlier question may arrive after it.
func (s *sessions) note(session string, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= sessionsMost {
		s.known = map[string]sessionState{} // the store knows
	}
	s.known[session] = sessionState{ended: ended || s.known[session].ended, at: lease.Elapsed()}
}
