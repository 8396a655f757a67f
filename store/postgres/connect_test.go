package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// poolOf opens a pool as a user would.
func poolOf(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// onPool opens the schema of a store again, on a pool.
func onPool(t *testing.T, first opened, pool *pgxpool.Pool) opened {
	t.Helper()
	db, err := postgres.New(t.Context(), pool, postgres.Config{Schema: first.schema})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return opened{db, first.url, first.schema}
}

// A user's pool has settings of its own, which are none of ours.
func ownSettings(config *pgxpool.Config) {
	config.MaxConns = 3
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set search_path = public; set timezone = 'Asia/Kolkata'")
		return err
	}
}

func TestStoreOnAPoolOfTheUser(t *testing.T) {
	t.Parallel()
	backend := contract(pgtest.Server(t), false)
	backend.New = func(t *testing.T) store.Store {
		first := openEmpty(t, pgtest.Server(t))
		return onPool(t, first, poolOf(t, first.url, ownSettings))
	}
	testMode(t, backend, "enqueue", "inspect", "listen", "queues", "progress", "steps", "inputs")
}

func TestStoreOnAPoolOfTheUserBehindAPooler(t *testing.T) {
	t.Parallel()
	pooler := pooled(t)
	backend := contract(pooler, true)
	backend.New = func(t *testing.T) store.Store {
		first := openEmpty(t, pooler)
		return onPool(t, first, poolOf(t, first.url, nil))
	}
	testMode(t, backend)
}

// With one connection in the pool, nothing may ask for a second while it has one.
func TestNew_OneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	one := func(config *pgxpool.Config) { config.MaxConns = 1 }
	storetest.TestTogether(t, storetest.Backend{
		New: func(t *testing.T) store.Store {
			first := openEmpty(t, pgtest.Server(t))
			return onPool(t, first, poolOf(t, first.url, one))
		},
	})
}

// The caller's transaction has the only connection of the pool, and the lane of the
// run is new.
func TestNew_EnqueueInATransactionThatHasTheLastConnection(t *testing.T) {
	t.Parallel()
	first := openStore(t, "")
	pool := poolOf(t, first.url, func(config *pgxpool.Config) { config.MaxConns = 1 })
	db := onPool(t, first, pool)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = db.WithTx(tx).Enqueue(ctx, newRun())
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

func TestNew_LeavesThePoolAsItWas(t *testing.T) {
	t.Parallel()
	first := openStore(t, "")
	pool := poolOf(t, first.url, func(config *pgxpool.Config) { ownSettings(config); config.MaxConns = 1 })
	db, err := postgres.New(t.Context(), pool, postgres.Config{Schema: first.schema})
	require.NoError(t, err)
	_, err = db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	require.Equal(t, int32(1), pool.Stat().TotalConns())
	db.Close()
	var path, zone, wait string
	err = pool.QueryRow(t.Context(), "select current_setting('search_path'), current_setting('timezone'), current_setting('lock_timeout')").Scan(&path, &zone, &wait)
	require.NoError(t, err, "Close does not close the pool")
	require.Equal(t, []string{"public", "Asia/Kolkata", "0"}, []string{path, zone, wait})
	require.Equal(t, int64(1), pool.Stat().NewConnsCount(), "the connection was never thrown away")
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, pgtest.Server(t), nil)
	_, err := postgres.New(t.Context(), nil, postgres.Config{})
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = postgres.New(t.Context(), pool, postgres.Config{MaxConns: 4})
	require.ErrorIs(t, err, store.ErrInvalid)
	readOnly := poolOf(t, pgtest.Server(t)+"&default_transaction_read_only=on", nil)
	_, err = postgres.New(t.Context(), readOnly, postgres.Config{})
	require.ErrorContains(t, err, "only reads")
}

// everyConnection calls what each kind of connection is for.
func everyConnection(t *testing.T, db opened) {
	t.Helper()
	_, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	r, runs := claim(t, db, worker("a"), 1, time.Minute)
	require.Len(t, runs, 1)
	renewed, err := db.Renew(t.Context(), []lease.ClaimID{r.Claim}, time.Minute)
	require.NoError(t, err)
	require.Len(t, renewed, 1)
	answer, err := db.Locks().Acquire(t.Context(), lock.Request{Name: rand.Text(), Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute, Owner: "o"})
	require.NoError(t, err)
	require.True(t, answer.Granted)
	_, err = db.Locks().Renew(t.Context(), []lease.ClaimID{lease.NewClaimID()}, time.Minute)
	require.NoError(t, err)
	_, err = db.Locks().Release(t.Context(), "n", lease.NewClaimID())
	require.NoError(t, err)
	_, err = db.Examine(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := false
	require.NoError(t, db.Listen(ctx, func(store.Signal) { heard = true; cancel() }))
	require.True(t, heard)
}

// withPassword starts a server where a role needs a password, and returns the
// role's address without one.
func withPassword(t *testing.T) (owner *pgx.Conn, address string) {
	t.Helper()
	server := pgtest.StartPrivate(t, pgtest.Options{})
	owner = connect(t, server.URL())
	var file string
	require.NoError(t, owner.QueryRow(t.Context(), "show hba_file").Scan(&file))
	rules, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append([]byte("local all rotating scram-sha-256\n"), rules...), 0o600))
	_, err = owner.Exec(t.Context(), "create role rotating login superuser password 'first'; select pg_reload_conf()")
	require.NoError(t, err)
	parsed, err := url.Parse(server.URL())
	require.NoError(t, err)
	parsed.User = url.User("rotating")
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), parsed.String())
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	}, 30*time.Second, 20*time.Millisecond, "the server asks for the password")
	return owner, parsed.String()
}

// A token is the password, as with IAM, and the next one has come.
func TestConnect_APasswordThatChanges(t *testing.T) {
	t.Parallel()
	owner, address := withPassword(t)
	var token atomic.Value
	token.Store("first")
	ask := func(_ context.Context, config *pgx.ConnConfig) error {
		config.Password = token.Load().(string)
		return nil
	}
	own, err := postgres.Open(t.Context(), address, postgres.Config{Schema: "own", Connect: ask})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	shared, err := postgres.New(t.Context(), poolOf(t, address, func(c *pgxpool.Config) { c.BeforeConnect = ask }), postgres.Config{Schema: "shared"})
	require.NoError(t, err)
	t.Cleanup(shared.Close)
	stores := []opened{{own, address, "own"}, {shared, address, "shared"}}
	for _, db := range stores {
		_, err = db.Migrate(t.Context())
		require.NoError(t, err)
		everyConnection(t, db)
	}
	_, err = owner.Exec(t.Context(), "alter role rotating password 'second'")
	require.NoError(t, err)
	token.Store("second")
	_, err = owner.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'rotating'")
	require.NoError(t, err)
	for _, db := range stores {
		require.Eventually(t, func() bool { // until each pool has noticed that its connections are gone
			_, general := db.Queues(t.Context())
			_, engine := db.Heads(t.Context(), store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
			_, beats := db.Renew(t.Context(), []lease.ClaimID{lease.NewClaimID()}, time.Minute)
			return errors.Join(general, engine, beats) == nil
		}, 20*time.Second, 50*time.Millisecond)
		everyConnection(t, db)
	}
}

// A dialer reaches what has no address, as Cloud SQL's does.
func TestConnect_ADialer(t *testing.T) {
	t.Parallel()
	first := openStore(t, "")
	there, err := pgx.ParseConfig(first.url)
	require.NoError(t, err)
	var dialed atomic.Int64
	network, socket := "unix", there.Host+"/.s.PGSQL.5432"
	if !strings.HasPrefix(there.Host, "/") {
		network, socket = "tcp", net.JoinHostPort(there.Host, "5432")
	}
	nowhere := "host=127.0.0.1 port=1 sslmode=disable user=" + there.User + " dbname=" + there.Database
	db, err := postgres.Open(t.Context(), nowhere, postgres.Config{Schema: first.schema, Connect: func(_ context.Context, config *pgx.ConnConfig) error {
		config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialed.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, socket)
		}
		return nil
	}})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	everyConnection(t, opened{db, first.url, first.schema})
	require.GreaterOrEqual(t, dialed.Load(), int64(4))
}

func TestConnect_ItsErrorIsTheConnections(t *testing.T) {
	t.Parallel()
	vault := errors.New("vault is sealed")
	_, err := postgres.Open(t.Context(), pgtest.Server(t), postgres.Config{Connect: func(context.Context, *pgx.ConnConfig) error { return vault }})
	require.ErrorIs(t, err, vault)
	require.ErrorContains(t, err, "prepare a connection: vault is sealed")
}

// A worker behind a dialer, as Cloud SQL's, goes on working while its token changes,
// every minute in production: an old one is refused, and the server ends connections
// whenever it likes. The hook is asked for each connection.
func TestConnect_AWorkerBehindADialerWhoseTokenChanges(t *testing.T) {
	t.Parallel()
	owner, address := withPassword(t)
	there, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	var token atomic.Value
	token.Store("first")
	db, err := postgres.Open(t.Context(), "host=127.0.0.1 port=1 sslmode=disable user=rotating dbname="+there.Database, postgres.Config{
		Connect: func(_ context.Context, config *pgx.ConnConfig) error {
			config.Password = token.Load().(string)
			config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", there.Host+"/.s.PGSQL.5432")
			}
			return nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)

	job := durable.NewJob[int]("count", durable.MaxAttempts(100), durable.Retry(durable.Fixed(time.Millisecond)))
	w := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(w, job, func(context.Context, *durable.Run[int]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	client := durable.NewClient(db)
	for minute := range 4 {
		for i := range 20 {
			require.Eventually(t, func() bool { // a caller repeats what was refused meanwhile
				_, err := job.Enqueue(t.Context(), client, i)
				return err == nil
			}, time.Minute, 10*time.Millisecond)
		}
		next := fmt.Sprint("token-", minute)
		_, err = owner.Exec(t.Context(), "alter role rotating password '"+next+"'")
		require.NoError(t, err)
		token.Store(next)
		_, err = owner.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'rotating'")
		require.NoError(t, err)
	}
	var left, succeeded int
	require.Eventually(t, func() bool {
		err := owner.QueryRow(t.Context(), "select count(*) filter (where state < 2), count(*) filter (where state = 2) from durable.runs").Scan(&left, &succeeded)
		return err == nil && left == 0
	}, time.Minute, 20*time.Millisecond)
	require.GreaterOrEqual(t, succeeded, 80)
	stop()
	require.NoError(t, <-ended)
}

// Behind a pooler, what a session sets for itself reaches the sessions of other programs.
func TestListen_ChangesNoPlansBehindAPooler(t *testing.T) {
	t.Parallel()
	db := openFresh(t, pooled(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	begun, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() { ended <- db.Listen(ctx, func(store.Signal) { once.Do(func() { close(begun) }) }) }()
	<-begun
	for range 10 {
		var mode string
		require.NoError(t, connect(t, db.url).QueryRow(t.Context(), "show plan_cache_mode").Scan(&mode))
		require.Equal(t, "auto", mode)
	}
	stop()
	require.NoError(t, <-ended)
}
