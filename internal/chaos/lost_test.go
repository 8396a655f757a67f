package chaos_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// losing is a way to a server of PostgreSQL on which answers are lost: the server has done
// what a statement says, and the connection ends before the client knows.
type losing struct {
	server string // the path of the server's socket, or its address
	kind   string
	lost   atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	over  bool
	done  sync.WaitGroup
}

// oneIn is how many answers of a server come between two that are lost, on average.
const oneIn = 150

// loseAnswers opens such a way to the database until the test ends.
func loseAnswers(t *testing.T, dsn string) (l *losing, through string) {
	t.Helper()
	at, err := url.Parse(dsn)
	require.NoError(t, err)
	query := at.Query()
	l = &losing{server: at.Host, kind: "tcp"}
	if dir := query.Get("host"); dir != "" {
		l.server, l.kind = dir+"/.s.PGSQL."+query.Get("port"), "unix"
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.done.Go(func() { l.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		l.over = true
		for _, conn := range l.conns {
			_ = conn.Close()
		}
		l.mu.Unlock()
		l.done.Wait()
	})
	query.Del("host")
	query.Del("port")
	at.Host, at.RawQuery = listener.Addr().String(), query.Encode()
	return l, at.String()
}

func (l *losing) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(l.kind, l.server) //nolint:noctx // it ends with the test
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		if l.over {
			_, _ = client.Close(), server.Close()
		}
		l.mu.Unlock()
		l.done.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		l.done.Go(func() { _, _ = io.Copy(answers{l, client}, server); _ = client.Close() })
	}
}

// answers are what a server says to a client.
type answers struct {
	*losing

	client net.Conn
}

var errLost = errors.New("lost")

// Write passes an answer on, or loses it and ends the connection.
func (a answers) Write(text []byte) (int, error) {
	if rand.IntN(oneIn) == 0 {
		a.lost.Add(1)
		return 0, errLost
	}
	return a.client.Write(text)
}
