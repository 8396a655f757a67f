package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestTheRunIsExecutedUntilThePersonStopsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library.db")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, path) }()

	store, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.Eventually(t, func() bool {
		page, err := store.Runs(t.Context(), durable.Filter{States: []durable.State{durable.Succeeded}, Limit: 10})
		return err == nil && len(page.Runs) == 1
	}, time.Minute, 20*time.Millisecond)
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("work does not end")
	}
}
