package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// A producer stores inputs and cannot release runs: a worker is to hear of them.
func TestGrants_AProducerSendsInputs(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	var logged bytes.Buffer
	as := openAs(t, migrated, postgres.RoleProducer, newRole(t, server))
	producer, err := postgres.Open(t.Context(), as.url, postgres.Config{Schema: as.schema, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	run := newRun()
	run.Key = store.Key{Text: "once"}
	_, err = producer.Enqueue(t.Context(), run)
	require.NoError(t, err)

	heard := make(chan store.Signal, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- migrated.Listen(ctx, func(signal store.Signal) {
			if signal.Kind == store.NoticesLeft {
				heard <- signal
			}
		})
	}()
	send := func(value string) (store.SendReceipt, error) {
		return producer.Send(t.Context(), store.NewInput{Job: run.Job, Key: "once", Name: "approved", Value: []byte(value)})
	}
	receipt, err := send(`1`)
	require.NoError(t, err)
	require.Equal(t, store.SendReceipt{Run: run.ID}, receipt)
	require.Eventually(t, func() bool {
		_, err := send(`1`)
		return err == nil && len(heard) > 0
	}, 20*time.Second, 50*time.Millisecond, "no listener hears of the input")
	require.Equal(t, store.Signal{Kind: store.NoticesLeft, Run: run.ID}, <-heard)
	_, err = send(`2`)
	require.ErrorIs(t, err, store.ErrConflict)
	cancel()
	require.NoError(t, <-ended)

	_, err = connect(t, as.url).Exec(t.Context(), "select value from "+as.schema+".inputs")
	forbidden(t, err, "what others have sent")
	producer.Close()
	require.NotContains(t, logged.String(), "input.not_released", "what is usual for a producer is no warning")
	found, err := store.StepsOf(t.Context(), migrated, run.ID)
	require.NoError(t, err)
	require.Len(t, found.Inputs, 1)
}
