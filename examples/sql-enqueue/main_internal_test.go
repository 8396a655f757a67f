package main

import (
	"bytes"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// In the tutorial's database there are orders and jobs already.
func TestAnOrderIsConfirmedIfItIsThere(t *testing.T) {
	database := pgtest.Database(t)
	pgtest.Execute(t, database, "create table orders (id bigint generated always as identity primary key, item text not null)")
	earlier, err := postgres.Open(t.Context(), database, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(earlier.Close)
	_, err = earlier.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, earlier.Declare(t.Context(), store.Declaration{
		Worker: store.WorkerID{Name: "shop", Instance: uuid.New()}, Jobs: []durable.JobInfo{durable.NewJob[string]("ship").Info()},
	}))

	for range 2 {
		var out bytes.Buffer
		require.NoError(t, shop(t.Context(), database, &out))
		require.Equal(t, "order confirmed to ada@example.com\n", out.String())
	}
}
