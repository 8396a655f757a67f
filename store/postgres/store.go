package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/internal/secret"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/witness"
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

// Store is a store.Store. Make it with Open or New; its methods may be called from
// many goroutines.
type Store struct {
	config  Config
	names   *namespace
	general *pgxpool.Pool // enqueue, inspect, lanes, migrations
	engine  *pgxpool.Pool // claim, settle, reclaim, heads, materialize, declare
	beats   *pgxpool.Pool // renewals, and nothing else
	// beatLost says that a connection of beats may be missing, beatStale that the one there is
	// may be of no use, and beatLife how old it may become; zero: any age.
	beatLost  chan struct{}
	beatStale atomic.Bool
	beatLife  time.Duration
	reading   *pgxpool.Pool   // what operators read; without questions it has no connection
	shared    bool            // general is the caller's: neither closed nor pinned
	dial      *pgxpool.Config // of the connections that belong to no pool
	served    atomic.Int64    // monotonic clock until which the schema is taken to be one we can serve; zero: not known
	reset     atomic.Int64    // monotonic clock when the pools were last emptied, nanoseconds
	clamped   atomic.Int64    // when leases were last clamped, likewise
	held      lately          // when a claim last gave up waiting for the row of a run
	stuck     lately          // when a settle did
	// sweepOpens says that a sweep under way has opened the only connection of general
	sweepOpens atomic.Bool
	// heldWaiters is when an admission met a waiter that another transaction had in hand
	heldWaiters lately
	backlog     dueBacklog
	aside       aside.Set[uuid.UUID] // leases and runs that Reclaim could not change
	resting     aside.Set[string]    // schedules that Materialize could not advance
	unpruned    aside.Set[string]    // tables that Sweep could not prune
	patient     chan struct{}        // holds those who wait long for a lock on a connection of general
	sparing     sparing              // of the engine's connections
	joins       joining              // settles that wait for the next claim
	handing     handing              // those that free places for which runs wait
	connections witness.Connections  // of the engine

	lanes   laneCache
	limits  limitCache
	marks   marks
	tally   admit.Tally
	capped  board.Capped // the lanes whose runs claims move into the lines of caps
	workers workerCache

	scheduleNames scheduleNames

	begins   bool // the server's default isolation is not ours, so that batches begin their transactions
	guards   bool // the engine's connections are guarded as a whole
	unpinned bool // something before the server does not pass our search_path on
	together beatCache
	specs    specs
	hints    hints
	crews    crews
	claimed  atomic.Int64 // runs, by the workers of this process
	txHints  txHints
	closing  context.CancelFunc
	running  sync.WaitGroup
}

const (
	engineConns = 4
	beatConns   = 2
	// operatorConns are those of a store for operators, see Config.Operators; its engine,
	// which then only reads the version of the schema, has operatorEngine, and
	// operatorIdle is how long one is kept that is not used.
	operatorConns  = 3
	operatorEngine = 2
	operatorIdle   = time.Minute
	// engineIdle is how long a second connection of the engine's is kept that a calm
	// worker does not use.
	engineIdle = 8 * time.Second
)

// Open connects to a database and checks that it can be written. It does not
// look at the schema: Migrate brings that up to date, and without it every
// other call reports what is wrong. ctx bounds Open only. Close the store.
func Open(ctx context.Context, url string, config Config) (*Store, error) {
	return open(ctx, config, func(s *Store) error { return s.connect(ctx, url) })
}

func open(ctx context.Context, config Config, connect func(*Store) error) (*Store, error) {
	if config.Schema == "" {
		config.Schema = defaultSchema
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if !storable.Schema.MatchString(config.Schema) || config.MaxConns < 0 {
		return nil, fmt.Errorf("open postgres: %w: schema %q: want %s; max conns %d: want 0 or more",
			store.ErrInvalid, config.Schema, storable.Schema, config.MaxConns)
	}
	s := &Store{config: config, names: &namespace{schema: config.Schema}, handing: handing{wait: handWait}}
	s.lanes.ids = map[lane]store.LaneID{}
	s.limits.byName, s.limits.lanes = limitSet{}, map[limitLane]struct{}{}
	s.workers.ids = map[uuid.UUID]int32{}
	s.beatLost = make(chan struct{}, 1)
	s.hints.init()
	if err := connect(s); err != nil {
		s.closePools()
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.closing = cancel
	s.running.Go(func() { s.sendHints(background) })
	s.running.Go(func() { s.keepBeats(background) })
	return s, nil
}

// Close sends the last wake-up and closes all connections. It waits for calls
// under way; a Listen has to be ended by its own context first.
func (s *Store) Close() {
	s.hintTrailed(s.txHints.end()) // sooner than it was to be
	s.closing()
	s.running.Wait()
	s.closePools()
}

func (s *Store) closePools() {
	for _, pool := range s.pools() {
		if pool != s.general || !s.shared {
			pool.Close()
		}
	}
}

func (s *Store) pools() []*pgxpool.Pool {
	var pools []*pgxpool.Pool
	for _, pool := range []*pgxpool.Pool{s.general, s.engine, s.beats, s.reading} {
		if pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// Pools reports how the connections are used.
func (s *Store) Pools() []store.Pool {
	var pools []store.Pool
	for name, pool := range map[string]*pgxpool.Pool{"general": s.general, "engine": s.engine, "beats": s.beats, "operate": s.reading} {
		stat := pool.Stat()
		pools = append(pools, store.Pool{Name: name, Max: int(stat.MaxConns()), Used: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()),
			Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime()})
	}
	slices.SortFunc(pools, func(a, b store.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return pools
}

func (s *Store) connect(ctx context.Context, url string) error {
	base, err := read(url)
	if err != nil {
		return err
	}
	if err := s.open(ctx, base); err != nil {
		return secret.Scrub(err, address(&base.ConnConfig.Config), base.ConnConfig.Password)
	}
	return nil
}

func (s *Store) open(ctx context.Context, base *pgxpool.Config) (err error) {
	if base.ConnConfig.ConnectTimeout == 0 {
		base.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	base.ConnConfig.DialFunc = dialer(base.ConnConfig.ConnectTimeout).DialContext
	base.BeforeConnect = inTurn(s.config.Connect)
	prepareConfig(base)
	s.dial = base
	general := base.Copy()
	if s.config.MaxConns > 0 {
		general.MaxConns = s.config.MaxConns
		general.MinConns = min(general.MinConns, general.MaxConns)
	}
	beats := s.beatsOf(base)
	if s.config.Operators {
		if s.config.MaxConns == 0 {
			general.MaxConns = operatorConns
		}
		general.MinConns, general.MinIdleConns = 0, 0
		closeIdle(general, operatorIdle)
	}
	s.patient = make(chan struct{}, max(general.MaxConns/2, 1))
	if err := s.opened(ctx, general, beats); err != nil {
		return err
	}
	return s.openEngine(ctx, base)
}

// openEngine makes the pools for what only workers and operators do.
func (s *Store) openEngine(ctx context.Context, base *pgxpool.Config) (err error) {
	s.dial = base.Copy()
	engine := base.Copy()
	engine.MaxConns, engine.MinConns, engine.MinIdleConns = engineConns, 0, 0
	closeIdle(engine, engineIdle)
	if s.config.Operators {
		engine.MaxConns = operatorEngine
	}
	if s.guards = !s.unpinned; s.guards {
		engine.AfterConnect = both(engine.AfterConnect, s.guardSession)
	}
	if s.engine, err = pgxpool.NewWithConfig(ctx, engine); err != nil {
		return err
	}
	s.sparing.open, s.sparing.most = func() int { return int(s.engine.Stat().TotalConns()) }, int(engine.MaxConns)
	return s.openReading(ctx, base)
}

// closeIdle has a pool close connections that are not used for a while. Each check of the
// pool turns the order round in which it hands out idle connections: where it checks more
// often than that while, it keeps all of them in use.
func closeIdle(c *pgxpool.Config, idle time.Duration) {
	c.MaxConnIdleTime = min(c.MaxConnIdleTime, idle)
	c.HealthCheckPeriod = c.MaxConnIdleTime + c.MaxConnIdleTime/4
}

// prepareConfig makes connections that know the types of our parameters even when
// nothing is prepared.
func prepareConfig(c *pgxpool.Config) {
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "durable"
	}
	// How we write and read text, whatever the role or the database has. Poolers
	// keep these apart for each client.
	c.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	c.ConnConfig.RuntimeParams["datestyle"] = "ISO, MDY"
	c.ConnConfig.RuntimeParams["search_path"] = pinnedPath
	c.AfterConnect = both(c.AfterConnect, func(_ context.Context, conn *pgx.Conn) error {
		m := conn.TypeMap()
		m.RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
		know(m)
		return nil
	})
}

// checkServer refuses a server that cannot be written, and remarks what an
// operator should know.
func (s *Store) checkServer(ctx context.Context, through *pgxpool.Pool) error {
	conn, err := through.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	sent := time.Now()
	server, err := s.queries(conn).Server(ctx)
	if err != nil {
		return err
	}
	host := s.dial.ConnConfig.Host
	switch {
	case server.Replica:
		return fmt.Errorf("the server at %s is a read-only replica: give the address of the primary", host)
	case server.ReadOnly:
		return fmt.Errorf("the server at %s allows only reads (default_transaction_read_only is on)", host)
	case server.Version < 140000:
		return fmt.Errorf("the server at %s has version %d: want 14 or later", host, server.Version/10000)
	case server.Encoding != "UTF8" && server.Encoding != "SQL_ASCII": // the latter keeps bytes as they come
		return fmt.Errorf("the database at %s keeps text as %s, which cannot hold everything that args and errors may contain: want a database with the encoding UTF8",
			host, server.Encoding)
	}
	s.begins = server.Isolation != "read committed"
	// Behind a pooler the next transaction may meet another connection.
	s.unpinned = server.Pid != int64(conn.Conn().PgConn().PID()) || server.SearchPath != pinnedPath && !s.shared
	if limit := time.Duration(server.StatementTimeout) * time.Millisecond; limit > 0 && limit < 5*time.Second {
		s.config.Logger.Warn("statement_timeout is short for this role or database: calls that set no limit of their own may fail", "event", "store.statement_timeout_short",
			"statement_timeout", limit.String(), "want", "5s or more")
	}
	if off := server.Now.Sub(sent); off > time.Since(sent.Add(-time.Second)) || off < -time.Second {
		s.config.Logger.Info("the database's clock differs from this machine's; the database's decides", "event", "clock.differs", "by", off.Round(time.Millisecond).String())
	}
	return nil
}

// queries returns the generated statements, in our schema.
func (s *Store) queries(db queries.DBTX) *queries.Queries {
	if pool, ok := db.(*pgxpool.Pool); ok && (s.begins || s.free(pool)) {
		db = wrapped{s, pool}
	}
	return queries.New(named{db, s.names})
}

// free reports whether the connections of a pool are not pinned as a whole.
func (s *Store) free(pool *pgxpool.Pool) bool { return s.unpinned || s.shared && pool == s.general }

// ErrSchema means that the database's schema is missing, older than this
// program needs, or too new for it.
var ErrSchema = fmt.Errorf("postgres: %w", store.ErrSchema)

// schemaEvery is how often the schema's version is read again.
const schemaEvery = 20 * time.Second

// usable checks the schema's version, each time until it can be served, and then now
// and again: another program may have migrated it. One call at a time does that.
func (s *Store) usable(ctx context.Context) error {
	until, now := s.served.Load(), int64(lease.Running())
	if until > now || until > 0 && !s.served.CompareAndSwap(until, now+int64(schemaEvery)) {
		return nil
	}
	if until > 0 {
		return s.examineSchema(ctx, now, true)
	}
	return s.inBackground(ctx, func() error {
		if s.served.Load() > now { // another call has found out meanwhile
			return nil
		}
		return s.examineSchema(ctx, now, false)
	})
}

// examineSchema reads the schema's version at an instant. Where it was served before, a server
// that does not answer changes nothing.
func (s *Store) examineSchema(ctx context.Context, now int64, served bool) error {
	have, want, minCompatible, err := s.Schema(ctx)
	if err != nil && served {
		return nil //nolint:nilerr // the call itself will find out
	}
	if err == nil {
		err = s.serves(have, want, minCompatible)
	}
	if err != nil {
		s.served.Store(0)
		return err
	}
	s.served.Store(max(now, 0) + int64(schemaEvery))
	return nil
}

// serves says why the store cannot serve a schema.
func (s *Store) serves(have, want, minCompatible int) error {
	switch {
	case have < want:
		return fmt.Errorf("%w: schema %q has version %d and this program needs %d: run `migrate up` of your worker program, or call Store.Migrate",
			ErrSchema, s.config.Schema, have, want)
	case minCompatible > want:
		return fmt.Errorf("%w: schema %q has version %d, which requires program version %d or later (this is %d): upgrade the program",
			ErrSchema, s.config.Schema, have, minCompatible, want)
	default:
		return nil
	}
}
