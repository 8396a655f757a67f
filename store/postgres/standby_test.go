package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// withoutStandby is a server whose synchronous standby is gone: what is committed is seen
// once its wait was cancelled, and a failover would take it back. Come brings the standby.
func withoutStandby(t *testing.T) (db opened, gone, come func()) {
	t.Helper()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	db = openURL(t, server, "durable")
	waits := func() bool { // the server applies the setting in its own time
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := connect(t, server).Exec(ctx, "update durable.queues set name = name")
		return err != nil
	}
	set := func(to string, want bool) {
		pgtest.Execute(t, server, "alter system "+to)
		pgtest.Execute(t, server, "select pg_reload_conf()")
		require.Eventually(t, func() bool { return waits() == want }, time.Minute, 50*time.Millisecond)
	}
	return db, func() { set("set synchronous_standby_names = 'gone'", true) }, func() { set("reset synchronous_standby_names", false) }
}

// impatiently calls with little time.
func impatiently(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return call(ctx)
}

// A call whose wait for the synchronous standby was cancelled has committed. A repeat finds
// that, and answers only once the standby has it too.
func TestRepeats_AnswerOnceTheStandbyHasWhatTheyFind(t *testing.T) {
	t.Parallel()
	db, gone, come := withoutStandby(t)
	_, err := db.Enqueue(t.Context(), newRuns(2)...)
	require.NoError(t, err)
	r, runs := claim(t, db, worker("w"), 2, time.Minute)
	require.Len(t, runs, 2)
	late := newRuns(2)
	ended := settlement(r, runs[:1], store.Outcome{Kind: store.Success})
	ended.Last = false
	enqueue := func(ctx context.Context) error { _, err := db.Enqueue(ctx, late...); return err }
	settle := func(ctx context.Context) error { _, err := db.Settle(ctx, []store.Settlement{ended}); return err }
	gone()
	for name, call := range map[string]func(context.Context) error{"enqueue": enqueue, "settle": settle} {
		for range 3 {
			require.Error(t, impatiently(t, call), name)
		}
	}
	require.Equal(t, "1", pgtest.Ask(t, db.url, "select count(*)::text from durable.runs where state = 2"), "it is seen")
	require.Equal(t, "3", pgtest.Ask(t, db.url, "select count(*)::text from durable.runs where state < 2"), "they are seen")
	come()
	receipts, err := db.Enqueue(t.Context(), late...)
	require.NoError(t, err)
	require.True(t, receipts[0].Existing)
	require.Equal(t, []store.Verdict{store.AlreadyApplied}, settled(t, db, ended))
}
