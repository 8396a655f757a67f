package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/lease"
)

// A worker keeps one connection open for its heartbeats: on a server all of whose connections
// are taken it cannot open one when a beat is due. So this connection is not closed because
// it is old, or because another has broken, before its successor is open. Where it is lost
// nevertheless, another is opened immediately; until then the renewals go over a connection that
// claims use.

const (
	// beatIdle is after what time a process that is no worker closes the connection for
	// heartbeats that has checked the server.
	beatIdle = time.Minute
	// beatOpen bounds how long a renewal waits for a connection of one pool, and how long
	// opening a successor takes; beatAgain is the time after which that is tried again.
	beatOpen  = 2 * time.Second
	beatAgain = time.Second
)

// beatsOf configures the pool for heartbeats. The store itself sees to the lifetime of their
// connection, so that the pool does not close it too early.
func (s *Store) beatsOf(base *pgxpool.Config) *pgxpool.Config {
	beats := base.Copy()
	beats.MaxConns, beats.MinConns, beats.MinIdleConns = beatConns, 0, 0
	s.beatLife = max(beats.MaxConnLifetime, 0) + time.Duration(rand.Float64()*float64(max(beats.MaxConnLifetimeJitter, 0))) //nolint:gosec // spreads load
	beats.MaxConnLifetime, beats.MaxConnLifetimeJitter, beats.MaxConnIdleTime = 0, 0, neverIdle
	return beats
}

// neverIdle is an idle time that no connection reaches.
const neverIdle = 100 * 365 * 24 * time.Hour

// renewals returns the pool over which a renewal goes: that for heartbeats, or the first
// other one that has a connection, or can open one.
func (s *Store) renewals(ctx context.Context) *pgxpool.Pool {
	for _, pool := range []*pgxpool.Pool{s.beats, s.engine, s.general} {
		if pool == s.general && s.shared {
			break
		}
		bounded, cancel := context.WithTimeout(ctx, orQuarter(ctx, beatOpen))
		conn, err := pool.Acquire(bounded)
		cancel()
		if err == nil {
			conn.Release()
			return pool
		}
		s.keepBeat()
	}
	return s.beats
}

// sendRenewal sends a batch over the connection for heartbeats, or any other.
func (s *Store) sendRenewal(ctx context.Context, b *batch) error {
	err := s.send(ctx, s.renewals(ctx), b)
	if err == nil {
		return nil
	}
	s.keepBeat()
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) && ctx.Err() == nil { // the connection had ended unnoticed, and there is no other for it
		return s.send(ctx, s.renewals(ctx), &batch{Batch: *b.again(), names: b.names, rewritten: b.rewritten})
	}
	return err
}

// keepBeat has the connection for heartbeats opened if there is none.
func (s *Store) keepBeat() {
	select {
	case s.beatLost <- struct{}{}:
	default:
	}
}

// renewBeat has the connection for heartbeats replaced: it may be of no use any more.
func (s *Store) renewBeat() {
	if !s.works() {
		s.beats.Reset()
		return
	}
	s.beatStale.Store(true)
	s.keepBeat()
}

// keepBeats keeps the connection for heartbeats until ctx ends. If no worker has registered
// after a while it closes the one that has checked the server; if one does later, it opens
// another.
func (s *Store) keepBeats(ctx context.Context) {
	opened, closes := lease.Elapsed(), true
	timer := time.NewTimer(beatIdle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.beatLost:
		}
		wait := beatIdle
		now := lease.Elapsed()
		switch {
		case !s.works():
			if closes && now-opened >= beatIdle {
				closes = false
				s.beats.Reset()
			}
		case s.beatStale.Swap(false) || s.beatLife > 0 && now-opened >= s.beatLife:
			if !s.replaceBeat(ctx) {
				s.beatStale.Store(true)
				wait = beatAgain
			} else {
				opened = now
			}
		case s.beats.Stat().TotalConns() == 0:
			if !s.replaceBeat(ctx) {
				wait = beatAgain
			}
		}
		if s.beatLife > 0 {
			wait = min(wait, max(opened+s.beatLife-lease.Elapsed(), beatAgain))
		}
		timer.Reset(wait)
	}
}

// replaceBeat opens a connection for heartbeats, and then closes those that were there. If it
// cannot, as on a server all of whose connections are taken, it keeps one that is still good,
// and reports failure.
func (s *Store) replaceBeat(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, beatOpen)
	defer cancel()
	old := s.beats.AcquireAllIdle(ctx)
	if len(old) == beatConns { // else there is no place for another
		closeConn(ctx, old[1])
		old = old[:1]
	}
	opened, err := s.beats.Acquire(ctx)
	for _, conn := range old {
		if err == nil || !s.isGood(conn) {
			closeConn(ctx, conn)
		} else {
			conn.Release()
		}
	}
	if err != nil {
		return false
	}
	opened.Release()
	return true
}

// isGood reports whether a connection leads to a server that can be written.
func (s *Store) isGood(conn *pgxpool.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), beatOpen)
	defer cancel()
	server, err := s.queries(conn).Server(ctx)
	return err == nil && !server.Replica && !server.ReadOnly
}

// closeConn closes a connection of a pool, for which the pool may open another.
func closeConn(ctx context.Context, conn *pgxpool.Conn) {
	_ = conn.Conn().Close(ctx)
	conn.Release()
}
