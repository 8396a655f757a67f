package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

const (
	hintPause = 5 * time.Millisecond // at most one NOTIFY of this process in it
	pingEvery = 30 * time.Second     // of the listening connection
)

// hints gathers wake-ups: commits that notify are serialised by the server, so
// a process sends few.
type hints struct {
	self      string        // tells our own notifications from others'
	due       chan struct{} // something is to be told
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

func (h *hints) init() {
	h.self, h.due, h.listeners = rand.Text(), make(chan struct{}, 1), map[chan struct{}]struct{}{}
}

// hint tells workers, here and elsewhere, that runs may be due. It never waits.
func (s *Store) hint() { raise(s.hints.due) }

func raise(flag chan struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}

// sendHints passes hints on until ctx ends, the last one included.
func (s *Store) sendHints(ctx context.Context) {
	for {
		select {
		case <-s.hints.due:
			s.sendHint(context.WithoutCancel(ctx)) // Close waits for it
		case <-ctx.Done():
			select {
			case <-s.hints.due:
				s.sendHint(context.WithoutCancel(ctx))
			default:
			}
			return
		}
		select {
		case <-time.After(hintPause):
		case <-ctx.Done():
		}
	}
}

func (s *Store) sendHint(ctx context.Context) {
	s.hints.mu.Lock()
	for listener := range s.hints.listeners {
		raise(listener)
	}
	s.hints.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.queries(s.general).Notify(ctx, queries.NotifyParams{Channel: s.names.channel(), Payload: s.hints.self})
	if err != nil && ctx.Err() == nil {
		s.config.Logger.Debug("notifying workers failed, they find the runs by polling", "error", err)
	}
}

// Listen calls wake after hints of this process and notifications of others,
// never twice at the same time.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	here := make(chan struct{}, 1)
	s.hints.mu.Lock()
	s.hints.listeners[here] = struct{}{}
	s.hints.mu.Unlock()
	defer func() {
		s.hints.mu.Lock()
		defer s.hints.mu.Unlock()
		delete(s.hints.listeners, here)
	}()

	var waking sync.WaitGroup
	defer waking.Wait()
	defer cancel()
	waking.Go(func() {
		for {
			select {
			case <-here:
				wake()
			case <-ctx.Done():
				return
			}
		}
	})
	if err := s.receive(ctx, func() { raise(here) }); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// receive waits for notifications on a connection of its own.
func (s *Store) receive(ctx context.Context, heard func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.dial)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.names.channel()}.Sanitize()); err != nil {
		return err
	}
	heard() // what came before we listened
	for {
		quiet, cancel := context.WithTimeout(ctx, pingEvery)
		notification, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil && notification.Payload == s.hints.self:
		case err == nil:
			heard()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			if err := s.ping(ctx, conn); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (s *Store) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return conn.Ping(ctx)
}
