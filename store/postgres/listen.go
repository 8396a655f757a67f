package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	hintPause = 5 * time.Millisecond // this process notifies at most once in it
	pingEvery = 30 * time.Second     // of the listening connection
)

// hints gathers signals: commits that notify are serialised by the server, so
// a process sends few.
type hints struct {
	self string     // tells our own notifications from others'
	out  *board.Box // to be sent
	here board.Board
}

func (h *hints) init() { h.self, h.out = rand.Text(), board.NewBox() }

// hint tells workers, here and elsewhere, that runs may be due. It never waits.
func (s *Store) hint() { s.hints.out.Put(store.Signal{Kind: store.RunsDue}) }

// Announce passes a signal on to all that listen, together with what else is
// announced within a few milliseconds.
func (s *Store) Announce(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	s.hints.out.Put(signal)
	return nil
}

// sendHints passes signals on until ctx ends, the last ones included.
func (s *Store) sendHints(ctx context.Context) {
	for {
		select {
		case <-s.hints.out.Given():
			s.sendHint(context.WithoutCancel(ctx)) // Close waits for it
		case <-ctx.Done():
			s.sendHint(context.WithoutCancel(ctx))
			return
		}
		select {
		case <-time.After(hintPause):
		case <-ctx.Done():
		}
	}
}

func (s *Store) sendHint(ctx context.Context) {
	waiting := s.hints.out.Take()
	if len(waiting) == 0 {
		return
	}
	s.hints.here.Give(waiting...)
	if s.config.NoNotify {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.queries(s.general).Notify(ctx, queries.NotifyParams{Channel: s.names.channel(), Payloads: payloads(s.hints.self, waiting)})
	if err != nil && ctx.Err() == nil {
		s.config.Logger.Debug("notifying others failed, they find out by polling", "error", err)
	}
}

// Listen calls hear for signals of this process and notifications of others,
// never twice at the same time.
func (s *Store) Listen(ctx context.Context, hear func(store.Signal)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	here := s.hints.here.Join()
	defer s.hints.here.Part(here)

	var hearing sync.WaitGroup
	defer hearing.Wait()
	defer cancel()
	hearing.Go(func() {
		for {
			select {
			case <-here.Given():
				for _, signal := range here.Take() {
					hear(signal)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	begun := func() { // what came before we listened
		here.Put(store.Signal{Kind: store.RunsDue}, store.Signal{Kind: store.CancelAsked}, store.Signal{Kind: store.RunEnded})
	}
	heard := func(payload string) { here.Put(signals(s.hints.self, payload)...) }
	if err := s.receive(ctx, s.names.channel(), begun, heard); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// receive waits for notifications on a connection of its own.
func (s *Store) receive(ctx context.Context, channel string, begun func(), heard func(payload string)) error {
	conn, err := pgx.ConnectConfig(ctx, s.dial)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	begun()
	for {
		quiet, cancel := context.WithTimeout(ctx, pingEvery)
		notification, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			heard(notification.Payload)
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
