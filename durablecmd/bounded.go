package durablecmd

import (
	"net"
	"sync"
)

// maxProbes is how many connections the health listener has at a time. Probes
// are short; a descriptor that an idle connection holds is one that handlers and
// the database's connections do not get.
const maxProbes = 64

// bounded is a listener that closes what it accepts beyond so many connections
// at a time, immediately.
type bounded struct {
	net.Listener
	places chan struct{}
}

func newBounded(listener net.Listener, most int) *bounded {
	return &bounded{Listener: listener, places: make(chan struct{}, most)}
}

// Accept waits for a connection that has a place.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = conn.Close() // the asker comes back
		}
	}
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
