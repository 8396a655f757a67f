package conn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/secret"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/witness"
)

const (
	// EngineConns is how many connections a worker claims and settles over.
	EngineConns = 4
	// BeatConns is how many it renews its leases over.
	BeatConns = 2
	// operatorConns are those of a store for operators, see Options.Operators; its engine,
	// which then only reads the version of the schema, has operatorEngine, and
	// operatorIdle is how long one is kept that is not used.
	operatorConns  = 3
	operatorEngine = 2
	operatorIdle   = time.Minute
	// engineIdle is how long a second connection of the engine's is kept that a calm
	// worker does not use.
	engineIdle = 8 * time.Second
)

// Options are what a program says about its connections.
type Options struct {
	MaxConns  int32       // of the general pool; zero: the default
	Connect   ConnectHook // before each connection; nil: none
	Operators bool        // no worker uses them
}

// DB is a database as a store uses it: four pools, and how statements are sent over each.
// Its fields are set by Connect or Share and do not change afterwards, but for those that
// guard themselves.
type DB struct {
	Options Options
	Names   *Namespace
	Log     *slog.Logger

	General *pgxpool.Pool   // enqueues, operates, migrates
	Engine  *pgxpool.Pool   // claims, settles, reclaims, materializes
	Beats   Heartbeats      // renews leases, and nothing else
	Reading *pgxpool.Pool   // what operators read; without questions it has no connection
	Dial    *pgxpool.Config // of the connections that belong to no pool

	Shared   bool // General is the caller's: neither closed nor pinned
	Unpinned bool // something before the server does not pass our search_path on
	begins   bool // the server's default isolation is not ours, so that batches begin their transactions
	guards   bool // the engine's connections are guarded as a whole

	Sparing     Sparing             // of the engine's connections
	Connections witness.Connections // of the engine, numbered
	patient     chan struct{}       // holds those who wait long for a lock on a connection of General
	reset       atomic.Int64        // monotonic clock when the pools were last emptied, nanoseconds

	// OnMissing is called when a table is missing: what is remembered of the schema is void.
	OnMissing func()
}

// New returns a database that is not connected yet. Works reports whether a worker of this
// process has registered.
func New(schema string, log *slog.Logger, options Options, works func() bool) *DB {
	if schema == "" {
		schema = DefaultSchema
	}
	db := &DB{Options: options, Names: &Namespace{Schema: schema}, Log: log, OnMissing: func() {}}
	db.Beats = Heartbeats{db: db, lost: make(chan struct{}, 1), works: works}
	return db
}

// Close closes the pools, but for one that is the caller's.
func (d *DB) Close() {
	for _, pool := range d.Pools() {
		if pool != d.General || !d.Shared {
			pool.Close()
		}
	}
}

// Usage reports how the connections are used.
func (d *DB) Usage() []store.Pool {
	var usage []store.Pool
	for name, pool := range map[string]*pgxpool.Pool{"general": d.General, "engine": d.Engine, "beats": d.Beats.Pool, "operate": d.Reading} {
		stat := pool.Stat()
		usage = append(usage, store.Pool{Name: name, Max: int(stat.MaxConns()), Used: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()),
			Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime()})
	}
	slices.SortFunc(usage, func(a, b store.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return usage
}

// Pools returns the pools that are open.
func (d *DB) Pools() []*pgxpool.Pool {
	var pools []*pgxpool.Pool
	for _, pool := range []*pgxpool.Pool{d.General, d.Engine, d.Beats.Pool, d.Reading} {
		if pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// Connect opens the pools for the server at an address.
func (d *DB) Connect(ctx context.Context, url string) error {
	base, err := read(url)
	if err != nil {
		return err
	}
	if err := d.open(ctx, base); err != nil {
		return secret.Scrub(err, address(&base.ConnConfig.Config), base.ConnConfig.Password)
	}
	return nil
}

func (d *DB) open(ctx context.Context, base *pgxpool.Config) (err error) {
	if base.ConnConfig.ConnectTimeout == 0 {
		base.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	base.ConnConfig.DialFunc = dialer(base.ConnConfig.ConnectTimeout).DialContext
	base.BeforeConnect = inTurn(d.Options.Connect)
	prepareConfig(base)
	d.Dial = base
	general := base.Copy()
	if d.Options.MaxConns > 0 {
		general.MaxConns = d.Options.MaxConns
		general.MinConns = min(general.MinConns, general.MaxConns)
	}
	beats := d.Beats.configured(base)
	if d.Options.Operators {
		if d.Options.MaxConns == 0 {
			general.MaxConns = operatorConns
		}
		general.MinConns, general.MinIdleConns = 0, 0
		closeIdle(general, operatorIdle)
	}
	d.patient = make(chan struct{}, max(general.MaxConns/2, 1))
	if err := d.opened(ctx, general, beats); err != nil {
		return err
	}
	return d.openEngine(ctx, base)
}

// openEngine makes the pools for what only workers and operators do.
func (d *DB) openEngine(ctx context.Context, base *pgxpool.Config) (err error) {
	d.Dial = base.Copy()
	engine := base.Copy()
	engine.MaxConns, engine.MinConns, engine.MinIdleConns = EngineConns, 0, 0
	closeIdle(engine, engineIdle)
	if d.Options.Operators {
		engine.MaxConns = operatorEngine
	}
	if d.guards = !d.Unpinned; d.guards {
		engine.AfterConnect = both(engine.AfterConnect, d.guardSession)
	}
	if d.Engine, err = pgxpool.NewWithConfig(ctx, engine); err != nil {
		return err
	}
	d.Sparing.open, d.Sparing.most = func() int { return int(d.Engine.Stat().TotalConns()) }, int(engine.MaxConns)
	return d.openReading(ctx, base)
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
func (d *DB) checkServer(ctx context.Context, through *pgxpool.Pool) error {
	conn, err := through.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	sent := time.Now()
	server, err := d.Queries(conn).Server(ctx)
	if err != nil {
		return err
	}
	host := d.Dial.ConnConfig.Host
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
	d.begins = server.Isolation != "read committed"
	// Behind a pooler the next transaction may meet another connection.
	d.Unpinned = server.Pid != int64(conn.Conn().PgConn().PID()) || server.SearchPath != pinnedPath && !d.Shared
	if limit := time.Duration(server.StatementTimeout) * time.Millisecond; limit > 0 && limit < 5*time.Second {
		d.Log.Warn("statement_timeout is short for this role or database: calls that set no limit of their own may fail", "event", "store.statement_timeout_short",
			"statement_timeout", limit.String(), "want", "5s or more")
	}
	if off := server.Now.Sub(sent); off > time.Since(sent.Add(-time.Second)) || off < -time.Second {
		d.Log.Info("the database's clock differs from this machine's; the database's decides", "event", "clock.differs", "by", off.Round(time.Millisecond).String())
	}
	return nil
}

// Queries returns the generated statements, in our schema.
func (d *DB) Queries(db queries.DBTX) *queries.Queries {
	if pool, ok := db.(*pgxpool.Pool); ok && (d.begins || d.free(pool)) {
		db = wrapped{d, pool}
	}
	return queries.New(named{db, d.Names})
}

// free reports whether the connections of a pool are not pinned as a whole.
func (d *DB) free(pool *pgxpool.Pool) bool { return d.Unpinned || d.Shared && pool == d.General }
