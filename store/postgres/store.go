package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/batches"
	"github.com/durable-worker/durable-worker/store/postgres/internal/claiming"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/declaring"
	"github.com/durable-worker/durable-worker/store/postgres/internal/enqueue"
	"github.com/durable-worker/durable-worker/store/postgres/internal/leases"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/reading"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/settling"
	"github.com/durable-worker/durable-worker/store/postgres/internal/steps"
	"github.com/durable-worker/durable-worker/store/postgres/internal/sweep"
	"github.com/durable-worker/durable-worker/store/postgres/internal/timetable"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

var _ store.Store = (*Store)(nil)

// Config adjusts a store. The zero value of each field means its default.
type Config struct {
	// Schema is the database schema that holds everything: a lower-case
	// letter or underscore, then letters, digits and underscores, at most 48.
	// Default "durable".
	Schema string
	// MaxConns bounds the connections that enqueue, and change what operators say.
	// Workers use up to seven more: four to claim and settle, two for heartbeats, one
	// to listen. What operators read goes over up to three others, which are there only
	// while they are used. Default: pool_max_conns of the URL, else the larger of 4 and the
	// number of CPUs.
	MaxConns int32
	// NoNotify keeps the store from sending NOTIFY, in the transactions of
	// callers too. Listeners of this process are notified as before; other
	// processes find out by polling. The store still listens.
	NoNotify bool
	// Connect is called before each connection that the store opens, the listener's
	// included, with a copy of its configuration to change: a password that expires
	// (IAM tokens, Vault), a DialFunc (Cloud SQL), a Tracer. Its error is that of the
	// connection, and may be logged: keep secrets out of it. It is called from many
	// goroutines. Connections of a pool that you give to New are not the store's: they
	// have the pool's BeforeConnect. Default: none.
	Connect ConnectHook
	// Operators says that no worker uses the store: it has at most eight connections, or
	// five more than MaxConns, and closes a connection that is unused for a minute.
	// Operators then never wait for workers, nor workers for operators.
	Operators bool
	// Logger gets what a person should see. Default: nothing is logged.
	Logger *slog.Logger
}

// ConnectHook changes the configuration of a connection before it is opened; see
// Config.Connect.
type ConnectHook = conn.ConnectHook

// Store is a store.Store. Make it with Open or New; its methods may be called from
// many goroutines.
type Store struct {
	db     *conn.DB
	schema *schema.Schema
	wake   *wake.Waker

	numbers   *numbers.Numbers
	reader    *reading.Reader
	enqueuer  *enqueue.Enqueuer
	timetable *timetable.Timetable
	steps     *steps.Steps
	batches   *batches.Batches
	sweeper   *sweep.Sweeper
	declarer  *declaring.Declarer
	worker    worker

	stop func() // ends what runs in the background, and waits for it
}

// worker is what workers alone call.
type worker struct {
	claimer  *claiming.Claimer
	admitter *admission.Admitter
	settler  *settling.Settler
	leases   *leases.Leases
}

// Open connects to a database and checks that it can be written. It does not
// look at the schema: Migrate brings that up to date, and without it every
// other call reports what is wrong. ctx bounds Open only. Close the store.
func Open(ctx context.Context, url string, config Config) (*Store, error) {
	return open(ctx, config, func(s *Store) error { return s.db.Connect(ctx, url) })
}

// Describe returns what the driver reads from a connection string, as a URL fit
// for people and logs: user, hosts, database and sslmode, those of the
// environment and of files included. It holds nothing else of the string, and
// so neither a password nor an option.
//
// The error repeats nothing of the string but the names of files: it is
// durable.ErrInvalid, or says which file cannot be read.
func Describe(url string) (string, error) {
	return conn.Describe(url)
}

// New returns a store that uses a pool of yours to enqueue, to inspect, to operate
// and to migrate, and checks that its database can be written. Close does not close
// the pool: close the store first, then the pool. Config.MaxConns must be zero; the
// pool has its own.
//
// The pool may have any size, hooks, settings and query_exec_mode, and a pooler in
// front of the server. The store sets the search_path and timeouts for single
// transactions, so nothing is left behind on your connections. It resets the pool
// after a migration and when the server has ended a connection.
//
// Calls that must not wait for a free connection of yours use connections of the
// store's own, which it opens when needed with the pool's ConnConfig,
// BeforeConnect and AfterConnect. A process that only enqueues has at most one of
// them, for a few seconds at a time, to look at the schema, to create lanes and to
// read limits, and one more to listen while it waits for results. A worker uses up to
// seven more than your pool has: four to claim and settle, which also serve what
// handlers ask for their runs, two for heartbeats, one to listen.
func New(ctx context.Context, pool *pgxpool.Pool, config Config) (*Store, error) {
	if pool == nil || config.MaxConns != 0 {
		return nil, fmt.Errorf("open postgres: %w: want a pool, and no MaxConns beside it", store.ErrInvalid)
	}
	return open(ctx, config, func(s *Store) error { return s.db.Share(ctx, pool) })
}

func open(ctx context.Context, config Config, connect func(*Store) error) (*Store, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{}
	s.db = conn.New(config.Schema, config.Logger, conn.Options{MaxConns: config.MaxConns, Connect: config.Connect, Operators: config.Operators}, func() bool { return s.numbers.Workers() > 0 })
	s.schema = schema.New(s.db)
	s.numbers = numbers.New(s.db)
	s.wake = wake.New(s.db, s.numbers, config.NoNotify)
	s.worker.settler = settling.New(s.db, s.schema, s.wake)
	s.worker.admitter = admission.New(s.db, s.schema, s.numbers, s.wake, s.worker.settler)
	s.reader = reading.New(s.db, s.schema, s.numbers, &s.worker.admitter.Tally)
	s.enqueuer = enqueue.New(s.db, s.schema, s.numbers, s.wake)
	s.timetable = timetable.New(s.db, s.schema, s.numbers, s.wake)
	s.worker.claimer = claiming.New(s.db, s.schema, s.numbers, s.wake, s.worker.settler, s.worker.admitter)
	s.worker.leases = leases.New(s.db, s.schema, s.wake, s.forgetRows)
	s.sweeper = sweep.New(s.db, s.schema, s.wake, s.reader, &s.worker.admitter.Tally)
	s.declarer = declaring.New(s.db, s.schema, s.numbers, s.wake)
	s.steps = steps.New(s.db, s.schema, releasing{s})
	s.batches = batches.New(s.db, s.schema)
	s.db.OnMissing = func() {
		s.schema.Forget()
		s.numbers.Forget()
	}
	if schema := s.db.Names.Schema; !storable.Schema.MatchString(schema) || config.MaxConns < 0 {
		return nil, fmt.Errorf("open postgres: %w: schema %q: want %s; max conns %d: want 0 or more",
			store.ErrInvalid, schema, storable.Schema, config.MaxConns)
	}
	if err := connect(s); err != nil {
		s.db.Close()
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	s.run(ctx)
	return s, nil
}

// run begins what runs in the background until the store is closed.
func (s *Store) run(ctx context.Context) {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { s.wake.Run(background) })
	running.Go(func() { s.db.Beats.KeepOpen(background) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

// Close sends the last wake-up and closes all connections. It waits for calls
// under way; a Listen has to be ended by its own context first.
func (s *Store) Close() {
	s.wake.EndTrailing()
	s.stop()
	s.db.Close()
}

// Pools reports how the connections are used.
func (s *Store) Pools() []store.Pool { return s.db.Usage() }

// forgetRows drops what is remembered of rows: another server answers, whose rows may be
// others. Its numbers may be given out again.
func (s *Store) forgetRows() {
	s.numbers.Forget()
	s.worker.admitter.ForgetMarks()
}
