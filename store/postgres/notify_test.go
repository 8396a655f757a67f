package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// A store that shall not notify sends nothing, whatever it does; its own
// listeners hear of everything.
func TestNoNotifySendsNothing(t *testing.T) {
	t.Parallel()
	migrated := openStore(t, "")
	db, err := postgres.Open(t.Context(), migrated.url, postgres.Config{Schema: migrated.schema, NoNotify: true})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	quiet := opened{db, migrated.url, migrated.schema}
	other := connect(t, migrated.url)
	_, err = other.Exec(t.Context(), "LISTEN "+migrated.schema+"_wake")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan store.Signal, 10_000), make(chan error, 1)
	go func() { ended <- db.Listen(ctx, func(s store.Signal) { heard <- s }) }()
	hears := func(kind store.SignalKind, run store.RunID) {
		t.Helper()
		for {
			select {
			case s := <-heard:
				if s.Kind == kind && s.Run == run {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("%v of %v is not received in this process", kind, run)
			}
		}
	}
	hears(store.RunEnded, store.RunID{}) // it listens
	_, err = db.Enqueue(t.Context(), newRun(durable.Unique("k")))
	require.NoError(t, err)
	hears(store.RunsDue, store.RunID{})
	for _, binding := range bindings {
		u := binding.open(t, quiet)
		_, err = u.Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		require.NoError(t, u.Commit())
		hears(store.RunsDue, store.RunID{})
	}
	ended1 := newRun().ID
	require.NoError(t, db.Publish(t.Context(), store.Signal{Kind: store.RunEnded, Run: ended1}))
	hears(store.RunEnded, ended1)

	_, err = connect(t, migrated.url).Exec(t.Context(), "select pg_notify($1, 'the end')", migrated.schema+"_wake")
	require.NoError(t, err)
	n, err := other.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "the end", strings.TrimSpace(n.Payload))
	cancel()
	require.NoError(t, <-ended)
}

// A role or a database may end sessions that are idle. The one that listens is idle all day.
func TestListen_OutlastsIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	migrated := openStore(t, "")
	address, err := url.Parse(migrated.url)
	require.NoError(t, err)
	values := address.Query()
	values.Set("idle_session_timeout", "300ms")
	address.RawQuery = values.Encode()
	db, err := postgres.Open(t.Context(), address.String(), postgres.Config{Schema: migrated.schema})
	require.NoError(t, err)
	t.Cleanup(db.Close)

	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	require.NoError(t, db.Listen(ctx, func(store.Signal) {}), "its session ended before it was to")
	require.Error(t, ctx.Err())
}
