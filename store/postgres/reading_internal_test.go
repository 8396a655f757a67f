package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestOperators_CannotWrite(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.Server(t), Config{Schema: "unused"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.db.Reading.Exec(t.Context(), "create table operator_writes (n int)")
	refused, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "25006", refused.Code)
	var limit, name string
	require.NoError(t, s.db.Reading.QueryRow(t.Context(), "select current_setting('statement_timeout'), current_setting('application_name')").Scan(&limit, &name))
	require.Equal(t, "5s", limit)
	require.Equal(t, "durable operate", name)
}
