package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

func TestListenerHearsAnotherProcess(t *testing.T) {
	t.Parallel()
	here := openStore(t, "")
	there := openURL(t, here.url, here.schema)
	ctx, stop := context.WithCancel(t.Context())
	woken, ended := make(chan struct{}, 100), make(chan error)
	go func() {
		ended <- here.Listen(ctx, func(signal store.Signal) {
			if signal.Kind == store.RunsDue {
				woken <- struct{}{}
			}
		})
	}()
	<-woken // it listens
	_, err := there.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("not woken")
	}
	stop()
	require.NoError(t, <-ended)
}

func TestStoreOutlivesItsServer(t *testing.T) {
	t.Parallel()
	c := pgtest.StartPrivate(t, pgtest.Options{})
	db := openURL(t, c.URL(), "durable")
	ended := make(chan error)
	go func() { ended <- db.Listen(t.Context(), func(store.Signal) {}) }()
	_, err := db.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	r, err := request(t.Context(), db, worker("w"), 1, time.Minute)
	require.NoError(t, err)
	runs, err := db.Claim(t.Context(), r)
	require.NoError(t, err)

	c.Stop(t, pgtest.Immediate)
	require.Error(t, <-ended, "the listener says that its connection broke")
	s := []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})}
	_, err = db.Settle(t.Context(), s)
	require.Error(t, err)
	c.Start(t)
	require.Eventually(t, func() bool {
		verdicts, err := db.Settle(t.Context(), s)
		return err == nil && verdicts[0] != store.Rejected
	}, time.Minute, 20*time.Millisecond)
	var counts map[store.State]store.Count
	require.Eventually(t, func() bool {
		counts, err = db.Counts(t.Context())
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.EqualValues(t, 1, counts[store.Succeeded].N)
	require.EqualValues(t, 2, counts[store.Pending].N)
}

func TestConnectionsAreDroppedWhenTheServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	store := openURL(t, url, "durable")
	conn := connect(t, url)
	allow := func(writes string) {
		_, err := conn.Exec(t.Context(), "do $$ begin execute format('alter database %I set default_transaction_read_only = "+writes+"', current_database()); end $$")
		require.NoError(t, err)
	}
	allow("on")
	_, err := conn.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'durable'")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := store.Enqueue(t.Context(), newRun())
		return err != nil && strings.Contains(err.Error(), "has become read-only")
	}, time.Minute, 20*time.Millisecond)
	_, err = conn.Exec(t.Context(), "set default_transaction_read_only = off")
	require.NoError(t, err)
	allow("off")
	require.Eventually(t, func() bool {
		_, err := store.Enqueue(t.Context(), newRun())
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

func TestCallsGoOnOverConnectionsThatWereClosedMeanwhile(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	store := openURL(t, url, "durable")
	conn := connect(t, url)
	for range 5 {
		_, err := store.Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		_, err = store.Heads(t.Context(), serves)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and application_name = 'durable'")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := store.Heads(t.Context(), serves)
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			_, err := store.Enqueue(t.Context(), newRun())
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
}

func TestDatabaseThatCannotHoldAllTextIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.DatabaseWith(t, "ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C'")
	_, err := postgres.Open(t.Context(), url, postgres.Config{})
	require.ErrorContains(t, err, "keeps text as LATIN1")
}

// Text is sent as UTF-8 and instants are read as they are meant, whatever the
// settings of a database, and bytes are kept as they come by one that knows no
// encoding. Where nothing is prepared all is text.
func TestSettingsOfADatabaseDoNotChangeWhatIsStored(t *testing.T) {
	t.Parallel()
	odd := pgtest.Database(t)
	for _, setting := range []string{"client_encoding = latin1", "datestyle = 'SQL, DMY'", "intervalstyle = sql_standard",
		"timezone = 'Australia/Lord_Howe'", "bytea_output = escape", "search_path = ''"} {
		_, err := connect(t, odd).Exec(t.Context(), `do $x$ begin execute format($$alter database %I set `+setting+`$$, current_database()); end $x$`)
		require.NoError(t, err)
	}
	for _, url := range []string{odd, odd + "&default_query_exec_mode=exec",
		pgtest.DatabaseWith(t, "ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'")} {
		store := openURL(t, url, "durable")
		requireKept(t, store)
	}
}

func requireKept(t *testing.T, db opened) {
	t.Helper()
	const text = `"日本 é 💥 \\ '"`
	run := newRun()
	run.Args, run.Tags = []byte(text), []string{text}
	run.Key = store.Key{Text: text + run.ID.String()}
	run.At = time.Date(2031, 2, 3, 4, 5, 6, 789_000, time.UTC)
	_, err := db.Enqueue(t.Context(), run)
	require.NoError(t, err)
	record, err := db.Run(t.Context(), run.ID)
	require.NoError(t, err)
	require.Equal(t, text, string(record.Args))
	require.Equal(t, []string{text}, record.Tags)
	require.Equal(t, run.Key.Text, *record.Key)
	require.Equal(t, run.At, record.DueAt)
	conn := connect(t, db.url+"&client_encoding=UTF8&default_query_exec_mode=cache_statement")
	var stored string
	require.NoError(t, conn.QueryRow(t.Context(), "select args::text from durable.runs where id = $1", run.ID).Scan(&stored))
	require.Equal(t, text, stored)
}
