package conn

import (
	"cmp"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store"
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
