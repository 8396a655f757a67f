package durablecmd_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

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

func TestCommandsRepeatThemselvesAfterALostConnection(t *testing.T) {
	t.Parallel()
	env := []string{"DURABLE_DATABASE_URL=" + pgtest.Server(t), "DURABLE_SCHEMA=repeats"}
	require.Zero(t, execute(t, env, "migrate", "up").code)
	do := func(cuts int32, statement string, args ...string) ended {
		left := &atomic.Int32{}
		left.Store(cuts)
		return executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args, Connect: func(_ context.Context, config *pgx.ConnConfig) error {
			dial := config.DialFunc
			config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return cutting{conn, []byte(statement), left}, err
			}
			return nil
		}})
	}
	lost := "the connection to the database was lost, trying again in "

	e := do(3, "-- name: CountSome :", "runs", "count")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, e.stdout, "pending")
	require.Positive(t, strings.Count(e.stderr, lost), e.stderr)

	e = do(3, "-- name: SetQueue :", "queues", "pause", "default", "--force")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, e.stderr, lost+"100ms: ")
	require.Equal(t, 1, strings.Count(execute(t, env, "audit", "list").stdout, "pause"), "it was paused once")

	e = do(1000, "-- name: CountSome :", "runs", "count")
	require.Equal(t, 1, e.code)
	require.Equal(t, 4, strings.Count(e.stderr, lost), "bounded: %s", e.stderr)
}
