package durablecmd

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/operate/access"
)

// maxProbes is how many connections the health listener has at a time. Probes
// are short; a descriptor that an idle connection holds is one that handlers and
// the database's connections do not get.
const maxProbes = 64

// bounded is a listener with so many connections at a time. A new one takes the place of
// the oldest stranger: a client that only holds connections keeps no others out. If there is no stranger,
// the new one is closed.
type bounded struct {
	net.Listener

	most   int
	what   string // it listens for
	logger *slog.Logger
	closed chan struct{}
	close  func() // closes it, once

	mu        sync.Mutex
	open      int
	strangers linked.List // of *placed, the oldest first: no request on them has said who makes it
}

func newBounded(listener net.Listener, most int, what string, logger *slog.Logger) *bounded {
	closed := make(chan struct{})
	return &bounded{Listener: listener, most: most, what: what, logger: logger, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Close ends the listener.
func (b *bounded) Close() error {
	b.close()
	return b.Listener.Close()
}

const (
	acceptPause    = 5 * time.Millisecond // before a failed accept is repeated; doubles
	acceptPauseMax = time.Second
	acceptLogEvery = time.Minute // at most
)

// Accept waits for a connection that has a place. A process without free descriptors, or a
// system without memory, is waited for and logged, because it does not concern the runs that are executing.
func (b *bounded) Accept() (net.Conn, error) {
	var logged time.Time
	for pause := acceptPause; ; pause = min(2*pause, acceptPauseMax) {
		conn, err := b.accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if time.Since(logged) > acceptLogEvery {
			b.logger.Warn("connections cannot be accepted, will be retried", "event", "listener.accept_failed", "listener", b.what, "error", err)
			logged = time.Now()
		}
		select {
		case <-b.closed:
		case <-time.After(pause):
		}
	}
}

// accept waits for a connection that has a place, or for a failure.
func (b *bounded) accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		placed, leaves := b.admit(conn)
		if leaves != nil {
			_ = leaves.Close() // the asker comes back
		}
		if placed != nil {
			return placed, nil
		}
	}
}

// admit gives a connection a place, and returns the one that has none any more.
func (b *bounded) admit(conn net.Conn) (admitted *placed, leaves net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.most {
		oldest := b.strangers.Front()
		if oldest == nil {
			return nil, conn
		}
		other, _ := oldest.Value.(*placed)
		b.leave(other)
		leaves = other
	}
	admitted = &placed{Conn: conn, in: b}
	admitted.stranger = b.strangers.PushBack(admitted)
	b.open++
	return admitted, leaves
}

// leave gives a place back, once. The caller holds mu.
func (b *bounded) leave(p *placed) {
	if p.left {
		return
	}
	p.left = true
	b.open--
	b.forget(p)
}

// forget takes a connection off the strangers. The caller holds mu.
func (b *bounded) forget(p *placed) {
	if p.stranger != nil {
		b.strangers.Remove(p.stranger)
		p.stranger = nil
	}
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn

	in       *bounded
	left     bool            // guarded by in.mu
	stranger *linked.Element // guarded by in.mu; nil: it is none
}

// Close closes the connection.
func (p *placed) Close() error {
	p.in.mu.Lock()
	p.in.leave(p)
	p.in.mu.Unlock()
	return p.Conn.Close()
}

// know notes that a request has said who makes it: the connection keeps its place.
func (p *placed) know() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.in.forget(p)
}

// acquainted is the context of the requests of a connection, for http.Server.
func acquainted(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if p, ok := conn.(*placed); ok {
		ctx = access.Acquainted(ctx, p.know)
	}
	return ctx
}
