package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// user is a transaction of a store's user.
type user struct {
	storetest.Transaction
	query func(statement string) (string, error)
	exec  func(statement string, args ...any) error
}

// binding is one way to begin such a transaction.
type binding struct {
	name string
	open func(t *testing.T, store opened) user
}

func (d binding) begin(t *testing.T, store opened) storetest.Transaction {
	t.Helper()
	return d.open(t, store).Transaction
}

// bindings are the drivers, in the modes that send parameters differently.
var bindings = []binding{
	pgxBinding("pgx", ""),
	pgxBinding("pgx-exec", "&default_query_exec_mode=exec"),
	pgxBinding("pgx-simple", "&default_query_exec_mode=simple_protocol"),
	sqlBinding("stdlib", "pgx", ""),
	sqlBinding("stdlib-describe", "pgx", "&default_query_exec_mode=describe_exec"),
	sqlBinding("lib-pq", "postgres", ""),
	sqlBinding("lib-pq-binary", "postgres", "&binary_parameters=yes"),
}

func pgxBinding(name, options string) binding {
	return binding{name, func(t *testing.T, store opened) user {
		t.Helper()
		tx, err := connect(t, plainURL(t, store)+options).Begin(t.Context())
		require.NoError(t, err)
		ctx := context.WithoutCancel(t.Context())
		t.Cleanup(func() { _ = tx.Rollback(ctx) })
		return user{
			storetest.Transaction{
				Tx: store.WithTx(tx), Commit: func() error { return tx.Commit(ctx) }, Rollback: func() { _ = tx.Rollback(ctx) },
			},
			func(statement string) (text string, err error) {
				err = tx.QueryRow(ctx, statement).Scan(&text)
				return text, err
			},
			func(statement string, args ...any) error {
				_, err := tx.Exec(ctx, statement, args...)
				return err
			},
		}
	}}
}

func sqlBinding(name, driver, options string) binding {
	return binding{name, func(t *testing.T, store opened) user {
		t.Helper()
		db, err := sql.Open(driver, plainURL(t, store)+options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return user{
			storetest.Transaction{Tx: store.WithSQLTx(tx), Commit: tx.Commit, Rollback: func() { _ = tx.Rollback() }},
			func(statement string) (text string, err error) {
				err = tx.QueryRowContext(context.WithoutCancel(t.Context()), statement).Scan(&text)
				return text, err
			},
			func(statement string, args ...any) error {
				_, err := tx.ExecContext(context.WithoutCancel(t.Context()), statement, args...)
				return err
			},
		}
	}}
}

// plainURL is the URL of the store's database, without options of the store's.
func plainURL(t *testing.T, store opened) string {
	t.Helper()
	u, err := url.Parse(store.url)
	require.NoError(t, err)
	kept := url.Values{}
	for _, name := range []string{"host", "port", "sslmode"} {
		if u.Query().Has(name) {
			kept.Set(name, u.Query().Get(name))
		}
	}
	u.RawQuery = kept.Encode()
	return u.String()
}

func TestTx_EveryDriver(t *testing.T) {
	t.Parallel()
	for _, binding := range bindings[1:] { // TestStore takes the first
		t.Run(binding.name, func(t *testing.T) {
			t.Parallel()
			storetest.TestTx(t, storetest.Backend{
				New:     func(t *testing.T) store.Store { return openStore(t, "") },
				Advance: func(t *testing.T, s store.Store, d time.Duration) { s.(opened).shift(t, d) },
				Begin:   func(t *testing.T, s store.Store) storetest.Transaction { return binding.begin(t, s.(opened)) },
			})
		})
	}
}

// A transaction of the caller's is left as it was found, and meets only our own
// tables, whatever lies in its search_path.
func TestTx_LeavesSettingsAndForeignTablesAlone(t *testing.T) {
	t.Parallel()
	for _, binding := range bindings {
		t.Run(binding.name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			_, runs := held(t, db)
			u := binding.open(t, db)
			const settings = "select string_agg(name || '=' || setting, ';' order by name) from pg_settings where name !~ 'transaction_deferrable|in_hot'"
			for _, table := range []string{"runs", "ready", "lanes", "leases"} {
				require.NoError(t, u.exec(fmt.Sprintf("create temporary table %s (x int)", table)))
			}
			_, err := u.query("select set_config('search_path', 'pg_temp', true)")
			require.NoError(t, err)
			before, err := u.query(settings)
			require.NoError(t, err)
			require.NoError(t, u.Guard(t.Context(), runs))
			_, err = u.Enqueue(t.Context(), newRuns(2)...)
			require.NoError(t, err)
			_, err = u.Runs(t.Context(), store.Filter{})
			require.NoError(t, err)
			require.NoError(t, u.Complete(t.Context(), runs, store.Completion{}))
			after, err := u.query(settings)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoError(t, u.Commit())
			requireConsistent(t, db)
		})
	}
}

// held claims a new run.
func held(t *testing.T, db opened) (store.ClaimRequest, store.Holder) {
	t.Helper()
	_, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	r, runs := claim(t, db, worker("holder"), 1, time.Minute)
	require.Len(t, runs, 1)
	return r, store.Holder{Run: runs[0].ID, Claim: r.Claim}
}

func TestTx_DueTimesAreCountedFromTheCall(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	u := bindings[0].open(t, store)
	_, err := u.query("select pg_sleep(0.3)::text")
	require.NoError(t, err)
	run := newRun(durable.After(time.Hour))
	_, err = u.Enqueue(t.Context(), run)
	require.NoError(t, err)
	record, err := u.Run(t.Context(), run.ID)
	require.NoError(t, err)
	require.NoError(t, u.Commit())
	require.Greater(t, record.DueAt.Sub(record.CreatedAt), time.Hour+250*time.Millisecond, "created_at is the transaction's beginning")
}

func TestTx_BadInputLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	for _, binding := range bindings {
		u := binding.open(t, db)
		_, err := u.Enqueue(t.Context(), store.NewRun{})
		require.ErrorIs(t, err, store.ErrInvalid)
		_, err = u.query("select 'still works'")
		require.NoError(t, err)
		u.Rollback()
	}
}

// With a snapshot that is older than a lane an Enqueue fails as a whole, and the
// transaction that is begun again succeeds.
func TestTx_SnapshotOlderThanALane(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	for try := range 2 {
		tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select 1")
		require.NoError(t, err)
		_, err = db.WithTx(tx).Enqueue(t.Context(), newRun(durable.OnQueue("new")))
		if try == 0 {
			require.ErrorContains(t, err, "begin it again")
			require.NoError(t, tx.Rollback(t.Context()))
			continue
		}
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, counts[store.Pending].N)
}

// A user's pool of one connection, and a store of one, are enough: what the
// store needs apart it takes from its own, and never two concurrently.
func TestTx_OneConnectionEach(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	small, err := postgres.Open(t.Context(), store.url, postgres.Config{Schema: store.schema, MaxConns: 1})
	require.NoError(t, err)
	defer small.Close()
	_, holder := held(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = small.EnqueueUnder(ctx, holder, newRun(durable.OnQueue("new-one")))
	require.NoError(t, err)
	u := bindings[0].open(t, opened{small, store.url, store.schema})
	_, err = u.Enqueue(ctx, newRun(durable.OnQueue("another-new-one")))
	require.NoError(t, err)
	require.NoError(t, u.Commit())
}

// The guard of EnqueueUnder holds against a takeover that is under way: it
// waits for that and is then refused.
func TestEnqueueUnder_WaitsForATakeoverUnderWay(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, holder := held(t, db)
	tx, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf("update %s.runs set claim_id = gen_random_uuid() where id = $1", db.schema), holder.Run)
	require.NoError(t, err)
	run, answered := newRun(), make(chan error, 1)
	go func() {
		_, err := db.EnqueueUnder(context.WithoutCancel(t.Context()), holder, run)
		answered <- err
	}()
	conn := connect(t, db.url)
	require.Eventually(t, func() bool {
		var waiting int
		err := conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%HoldRun%' and query like '%'||$1||'%'",
			db.schema).Scan(&waiting)
		return err == nil && waiting == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	if err = <-answered; errors.Is(err, store.ErrConflict) { // it waits for a second, and the machine stopped us for longer
		_, err = db.EnqueueUnder(t.Context(), holder, run)
	}
	require.ErrorIs(t, err, lease.ErrLost)
	_, err = db.Run(t.Context(), run.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// The other way round: once EnqueueUnder is granted, a takeover cannot come
// between it and its commit. The handler's own transaction is kept apart.
func TestEnqueueUnder_SaysThatTheRunIsLocked(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, holder := held(t, db)
	u := bindings[0].open(t, db)
	require.NoError(t, u.Guard(t.Context(), holder))
	run := newRun()
	_, err := db.EnqueueUnder(t.Context(), holder, run)
	require.ErrorIs(t, err, store.ErrConflict)
	_, err = db.Run(t.Context(), run.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = u.Enqueue(t.Context(), run)
	require.NoError(t, err)
	require.NoError(t, u.Commit())
	requireConsistent(t, db)
}

// A worker that sleeps is notified of the commit immediately, whether or not the
// transaction carried the notification.
func TestTx_CommitWakesASleeper(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan time.Time, 10_000), make(chan error, 1)
	go func() { ended <- db.Listen(ctx, func(store.Signal) { woken <- time.Now() }) }()
	<-woken // it listens
	var slowest time.Duration
	for i := range 3 {
		quickest := time.Hour
		for try := 0; quickest >= 2*time.Second; try++ { // the machine may have no time for one of us
			require.Less(t, try, 5, "the quickest commit woke the listener after %v", quickest)
			quickest = min(quickest, wakes(t, bindings[i%len(bindings)].open(t, db), woken))
		}
		slowest = max(slowest, quickest)
	}
	t.Logf("the slowest of three commits woke the listener after %v", slowest)
	cancel()
	require.NoError(t, <-ended)
}

// wakes commits an enqueue and returns how much later the listener was woken.
func wakes(t *testing.T, u user, woken <-chan time.Time) time.Duration {
	t.Helper()
	_, err := u.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	for quiet := false; !quiet; { // trailing hints of an earlier one
		select {
		case <-woken:
		case <-time.After(1200 * time.Millisecond):
			quiet = true
		}
	}
	committed := time.Now()
	require.NoError(t, u.Commit())
	select {
	case at := <-woken:
		return at.Sub(committed)
	case <-time.After(time.Minute):
		t.Fatal("not woken")
		return 0
	}
}

// A burst of transactions carries few notifications; the last of them is received
// all the same.
func TestTx_BurstSendsFewNotifications(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	conn := connect(t, store.url)
	_, err := conn.Exec(t.Context(), "LISTEN "+store.schema+"_wake")
	require.NoError(t, err)
	user := connect(t, plainURL(t, store))
	began := time.Now()
	for range 200 {
		tx, err := user.Begin(t.Context())
		require.NoError(t, err)
		_, err = store.WithTx(tx).Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	took := time.Since(began)
	heard, trailing := 0, 0
	for {
		patience := 1500 * time.Millisecond
		if trailing == 0 {
			patience = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		n, err := conn.WaitForNotification(ctx)
		cancel()
		if err != nil {
			break
		}
		heard++
		if strings.TrimSpace(n.Payload) != "commit" {
			trailing++
		}
	}
	most := int(took/(5*time.Millisecond)) + 1
	t.Logf("200 transactions in %v: %d notifications of theirs, %d trailing", took, heard-trailing, trailing)
	require.LessOrEqual(t, heard-trailing, most)
	require.Positive(t, trailing)
}
