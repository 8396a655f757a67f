package postgres_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// cutter passes a server's connections on and cuts one when the test says so: in the message
// after so many whole ones, or with DURABLE_TEST_LONG after so many bytes.
type cutter struct {
	listener net.Listener
	network  string
	address  string
	byBytes  bool
	next     atomic.Int64 // messages, or bytes, of replies until a connection is cut; negative: none
	fired    atomic.Bool
}

// openCut opens a second store on the same schema, behind a cutter.
func openCut(t *testing.T, store opened) (opened, *cutter) {
	t.Helper()
	config, err := pgx.ParseConfig(plainURL(t, store))
	require.NoError(t, err)
	c := &cutter{byBytes: long()}
	c.network, c.address = "tcp", net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	if config.Host[0] == '/' {
		c.network, c.address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	c.next.Store(-1)
	c.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.listener.Close()) })
	go c.accept()
	u, err := url.Parse(plainURL(t, store))
	require.NoError(t, err)
	u.Host, u.RawQuery = c.listener.Addr().String(), "sslmode=disable"
	return openMigrated(t, u.String(), store.schema), c
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(c.network, c.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		go func() { c.pass(client, server); _ = client.Close() }()
	}
}

// pass passes replies on, up to where they are to be cut.
func (c *cutter) pass(client, server net.Conn) {
	from, to := bufio.NewReaderSize(server, 1<<16), bufio.NewWriterSize(client, 1<<16)
	defer func() { _ = to.Flush() }()
	for {
		message, err := reply(from)
		if err != nil {
			return
		}
		if left := c.left(int64(len(message))); left >= 0 {
			_, _ = to.Write(message[:left])
			return
		}
		if _, err := to.Write(message); err != nil {
			return
		}
		if from.Buffered() == 0 && to.Flush() != nil {
			return
		}
	}
}

// reply reads one message: its type, its length, which counts itself, and the rest.
func reply(from io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	message := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	copy(message, head)
	_, err := io.ReadFull(from, message[len(head):])
	return message, err
}

// left is how many bytes of a message are passed on before the connection is cut; negative: all,
// and it is not cut.
func (c *cutter) left(size int64) int64 {
	next := c.next.Load()
	switch {
	case next < 0:
		return -1
	case c.byBytes && next >= size:
		c.next.Add(-size)
		return -1
	case !c.byBytes && next > 0:
		c.next.Add(-1)
		return -1
	}
	c.next.Store(-1)
	c.fired.Store(true)
	if c.byBytes {
		return next
	}
	return size / 2
}

// sweep cuts what do does in every message of the replies, until there is nothing
// left to cut, each time after one that was whole.
func (c *cutter) sweep(t *testing.T, do func(n int64)) {
	t.Helper()
	for n := int64(0); ; n++ {
		do(-1)
		c.fired.Store(false)
		c.next.Store(n)
		do(n)
		c.next.Store(-1)
		if !c.fired.Load() {
			require.Greater(t, n, int64(3))
			t.Logf("cut up to %d", n)
			return
		}
	}
}
