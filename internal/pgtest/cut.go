package pgtest

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Cut is a connect hook whose connections end when they send a statement, the first so
// many times.
func Cut(statement string, times int32) func(context.Context, *pgx.ConnConfig) error {
	left := &atomic.Int32{}
	left.Store(times)
	return func(_ context.Context, config *pgx.ConnConfig) error {
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return cutting{conn, []byte("-- name: " + statement + " :"), left}, err
		}
		return nil
	}
}

// cutting is a connection that ends when a statement is sent, as long as there are
// cuts left.
type cutting struct {
	net.Conn
	statement []byte
	left      *atomic.Int32
}

// Write sends, or breaks.
func (c cutting) Write(text []byte) (int, error) {
	if bytes.Contains(text, c.statement) && c.left.Add(-1) >= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(text)
}
