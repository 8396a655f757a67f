package witness_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres/internal/witness"
)

// open opens a connection, and numbers it unless nothing is to be known of it.
func open(t *testing.T, number func(*pgx.Conn)) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Server(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	number(conn)
	return conn
}

// given is the argument that a statement gets over a connection.
func given(t *testing.T, conn *pgx.Conn, opened int64) (before string, claimed int) {
	t.Helper()
	var b pgx.Batch
	b.Queue("select $1::text, $2::int", witness.Argument{Opened: opened, At: 1, Else: int32(-1)}, "x", int32(10)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&before, &claimed) })
	require.NoError(t, conn.SendBatch(t.Context(), &b).Close())
	return before, claimed
}

func TestArgument_IsForConnectionsThatWereOpenBeforeTheClaim(t *testing.T) {
	t.Parallel()
	var c witness.Connections
	claim := [16]byte{1}
	old := open(t, c.Number)
	c.Made(claim, c.Opened())
	young, unknown := open(t, c.Number), open(t, func(*pgx.Conn) {})
	for name, one := range map[string]struct {
		conn *pgx.Conn
		want int
	}{"open before": {old, 10}, "opened since": {young, -1}, "without a number": {unknown, -1}} {
		before, claimed := given(t, one.conn, c.Of(claim))
		require.Equal(t, one.want, claimed, name)
		require.Equal(t, "x", before, name)
	}
	c.Over(claim)
	_, claimed := given(t, old, c.Of(claim))
	require.Equal(t, -1, claimed, "a claim of which nothing is known has no witness")
}

func TestConnections_RememberABoundedNumberOfClaims(t *testing.T) {
	t.Parallel()
	var c witness.Connections
	for i := range 30_000 {
		c.Made([16]byte{byte(i), byte(i >> 8), 1}, 1)
	}
	known := 0
	for i := range 30_000 {
		known += int(c.Of([16]byte{byte(i), byte(i >> 8), 1}))
	}
	require.LessOrEqual(t, known, 10_000)
}
