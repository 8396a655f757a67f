package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

func TestAnOrderIsStoredWithItsRun(t *testing.T) {
	o, err := open(t.Context(), filepath.Join(t.TempDir(), "service.db"))
	require.NoError(t, err)
	t.Cleanup(o.close)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(url.Values{"item": {"book"}}.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	o.ServeHTTP(answer, request)
	require.Equal(t, "1\n", answer.Body.String())
	run := durabletest.RequireEnqueued(t, o.store, ship())
	require.Equal(t, int64(1), run.Args.Order)

	got := durabletest.PerformOn(t, o.store, ship(), o.perform, run.Args)
	require.NoError(t, got.Err)
	require.Equal(t, durable.Succeeded, got.Record.State)
	answer = httptest.NewRecorder()
	o.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, "1\n", answer.Body.String())
}

func TestAnOrderThatIsNotStoredIsNotShipped(t *testing.T) {
	o, err := open(t.Context(), filepath.Join(t.TempDir(), "service.db"))
	require.NoError(t, err)
	t.Cleanup(o.close)
	tx, err := o.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = ship().Enqueue(t.Context(), o.store.WithTx(tx), shipArgs{Order: 1})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	durabletest.RequireNotEnqueued(t, o.store, ship())
}

func TestTheServiceShipsAndEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.db")
	o, err := open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(o.close)
	_, err = o.take(t.Context(), "book")
	require.NoError(t, err)
	run := durabletest.RequireEnqueued(t, o.store, ship())

	ctx, sigterm := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service(ctx, path, "127.0.0.1:0") }()
	records, err := durable.NewClient(o.store).Wait(t.Context(), run.Record.ID)
	require.NoError(t, err)
	require.Equal(t, durable.Succeeded, records[0].State)
	sigterm()
	require.NoError(t, <-ended)
}
