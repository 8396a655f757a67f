package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
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

// Heartbeats is the pool over which leases are renewed, and nothing else.
type Heartbeats struct {
	db    *DB
	Pool  *pgxpool.Pool
	life  time.Duration // how old a connection may become; zero: any age
	lost  chan struct{} // has an element when a connection may be missing
	stale atomic.Bool   // the connection that is there may be of no use
	works func() bool   // a worker of this process has registered
}

// configured configures the pool for heartbeats. The store itself sees to the lifetime of their
// connection, so that the pool does not close it too early.
func (h *Heartbeats) configured(base *pgxpool.Config) *pgxpool.Config {
	beats := base.Copy()
	beats.MaxConns, beats.MinConns, beats.MinIdleConns = BeatConns, 0, 0
	h.life = max(beats.MaxConnLifetime, 0) + time.Duration(rand.Float64()*float64(max(beats.MaxConnLifetimeJitter, 0))) //nolint:gosec // spreads load
	beats.MaxConnLifetime, beats.MaxConnLifetimeJitter, beats.MaxConnIdleTime = 0, 0, neverIdle
	return beats
}

// neverIdle is an idle time that no connection reaches.
const neverIdle = 100 * 365 * 24 * time.Hour

// renewals returns the pool over which a renewal goes: that for heartbeats, or the first
// other one that has a connection, or can open one.
func (h *Heartbeats) renewals(ctx context.Context) *pgxpool.Pool {
	for _, pool := range []*pgxpool.Pool{h.Pool, h.db.Engine, h.db.General} {
		if pool == h.db.General && h.db.Shared {
			break
		}
		bounded, cancel := context.WithTimeout(ctx, orQuarter(ctx, beatOpen))
		conn, err := pool.Acquire(bounded)
		cancel()
		if err == nil {
			conn.Release()
			return pool
		}
		h.Open()
	}
	return h.Pool
}

// Send sends a batch over the connection for heartbeats, or any other.
func (h *Heartbeats) Send(ctx context.Context, b *Batch) error {
	err := h.db.Send(ctx, h.renewals(ctx), b)
	if err == nil {
		return nil
	}
	h.Open()
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) && ctx.Err() == nil { // the connection had ended unnoticed, and there is no other for it
		return h.db.Send(ctx, h.renewals(ctx), &Batch{Batch: *b.again(), Names: b.Names, Rewritten: b.Rewritten})
	}
	return err
}

// Open has the connection for heartbeats opened if there is none.
func (h *Heartbeats) Open() {
	select {
	case h.lost <- struct{}{}:
	default:
	}
}

// renew has the connection for heartbeats replaced: it may be of no use any more.
func (h *Heartbeats) renew() {
	if !h.works() {
		h.Pool.Reset()
		return
	}
	h.stale.Store(true)
	h.Open()
}

// KeepOpen keeps the connection for heartbeats until ctx ends. If no worker has registered
// after a while it closes the one that has checked the server; if one does later, it opens
// another.
func (h *Heartbeats) KeepOpen(ctx context.Context) {
	opened, closes := lease.Elapsed(), true
	timer := time.NewTimer(beatIdle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-h.lost:
		}
		wait := beatIdle
		now := lease.Elapsed()
		switch {
		case !h.works():
			if closes && now-opened >= beatIdle {
				closes = false
				h.Pool.Reset()
			}
		case h.stale.Swap(false) || h.life > 0 && now-opened >= h.life:
			if !h.replace(ctx) {
				h.stale.Store(true)
				wait = beatAgain
			} else {
				opened = now
			}
		case h.Pool.Stat().TotalConns() == 0:
			if !h.replace(ctx) {
				wait = beatAgain
			}
		}
		if h.life > 0 {
			wait = min(wait, max(opened+h.life-lease.Elapsed(), beatAgain))
		}
		timer.Reset(wait)
	}
}

// replace opens a connection for heartbeats, and then closes those that were there. If it
// cannot, as on a server all of whose connections are taken, it keeps one that is still good,
// and reports failure.
func (h *Heartbeats) replace(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, beatOpen)
	defer cancel()
	old := h.Pool.AcquireAllIdle(ctx)
	if len(old) == BeatConns { // else there is no place for another
		closeConn(ctx, old[1])
		old = old[:1]
	}
	opened, err := h.Pool.Acquire(ctx)
	for _, conn := range old {
		if err == nil || !h.isGood(conn) {
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
func (h *Heartbeats) isGood(conn *pgxpool.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), beatOpen)
	defer cancel()
	server, err := h.db.Queries(conn).Server(ctx)
	return err == nil && !server.Replica && !server.ReadOnly
}

// closeConn closes a connection of a pool, for which the pool may open another.
func closeConn(ctx context.Context, conn *pgxpool.Conn) {
	_ = conn.Conn().Close(ctx)
	conn.Release()
}
