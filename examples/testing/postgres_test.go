package signup_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	signup "github.com/durable-worker/durable-worker/examples/testing"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// open opens a store in an empty database.
func open(t *testing.T) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Config{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return store
}

// The same on a real PostgreSQL, in real time.
func TestSignupOnPostgres(t *testing.T) {
	store, mail := open(t), &outbox{}
	require.NoError(t, signup.Signup(t.Context(), durable.NewClient(store), "ada@example.com"))
	welcome := durabletest.RequireEnqueued(t, store, signup.Welcome())

	w := durable.NewWorker(store, durable.WorkerConfig{})
	signup.Register(w, mail)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool {
		run, err := store.Run(t.Context(), welcome.Record.ID)
		return err == nil && run.State == durable.Succeeded
	}, 2*time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// One handler on a real PostgreSQL.
func TestHandlerOnPostgres(t *testing.T) {
	got := durabletest.PerformOn(t, open(t), signup.Welcome(), signup.Send(&outbox{}, "welcome!"), signup.MailArgs{Email: "ada@example.com"})
	require.NoError(t, got.Err)
	require.Equal(t, durable.Succeeded, got.Record.State)
}
