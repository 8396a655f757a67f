package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/secret"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Options are what a program says about its connections.
type Options struct {
	MaxConns  int32       // of the general pool; zero: the default
	Connect   ConnectHook // before each connection; nil: none
	Operators bool        // no worker uses them
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

// opened makes the general pool and that of the beats, and checks the server through the one
// that will need a connection: a process that only works needs none of the general pool, and
// operators need none of the other. Where the connections cannot be pinned as a whole, each transaction is.
func (d *DB) opened(ctx context.Context, general, beats *pgxpool.Config) (err error) {
	for {
		if d.General, err = pgxpool.NewWithConfig(ctx, general); err != nil {
			return err
		}
		if d.Beats.Pool, err = pgxpool.NewWithConfig(ctx, beats); err != nil {
			return err
		}
		through := d.Beats.Pool
		if d.Options.Operators {
			through = d.General
		}
		if err = d.checkServer(ctx, through); !refusesPath(err) || d.Dial.ConnConfig.RuntimeParams["search_path"] == "" {
			return err
		}
		d.General.Close()
		d.Beats.Pool.Close()
		for _, config := range []*pgxpool.Config{d.Dial, general, beats} {
			delete(config.ConnConfig.RuntimeParams, "search_path")
		}
	}
}

// Share makes the caller's pool the general one.
func (d *DB) Share(ctx context.Context, pool *pgxpool.Pool) (err error) {
	base := pool.Config()
	d.General, d.Shared, d.Dial = pool, true, base
	d.patient = make(chan struct{}, max(base.MaxConns/2, 1))
	if err = d.checkServer(ctx, pool); err != nil {
		return err
	}
	prepareConfig(base)
	if d.Unpinned {
		delete(base.ConnConfig.RuntimeParams, "search_path")
	} else {
		base.AfterConnect = both(base.AfterConnect, func(ctx context.Context, conn *pgx.Conn) error { // overrides what the caller's hook has set
			_, err := conn.Exec(ctx, "SET search_path = "+pinnedPath)
			return err
		})
	}
	base.BeforeConnect = inTurn(base.BeforeConnect, d.Options.Connect)
	// What these do is for the caller's own use of its connections.
	base.PrepareConn, base.BeforeAcquire, base.AfterRelease = nil, nil, nil //nolint:staticcheck // the pool may have the old hook
	base.MinConns, base.MinIdleConns = 0, 0
	base.MaxConnIdleTime = max(base.MaxConnIdleTime, time.Minute)
	if d.Beats.Pool, err = pgxpool.NewWithConfig(ctx, d.Beats.configured(base)); err != nil {
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

// openReading makes the pool over which operators read: lists, counts, surveys. However
// many they are, they take no connection that enqueues or works, and change nothing.
func (d *DB) openReading(ctx context.Context, base *pgxpool.Config) (err error) {
	c := base.Copy()
	c.MaxConns, c.MinConns, c.MinIdleConns = ReadingConns, 0, 0
	closeIdle(c, readingIdle)
	c.ConnConfig.RuntimeParams["application_name"] += " operate"
	if !d.Unpinned { // behind a pooler the settings would be those of others too: see whole
		c.AfterConnect = both(c.AfterConnect, func(ctx context.Context, conn *pgx.Conn) error {
			return d.Queries(conn).OperatorSession(ctx, queries.OperatorSessionParams{StatementTimeout: Milliseconds(readingLimit)})
		})
	}
	d.Reading, err = pgxpool.NewWithConfig(ctx, c)
	return err
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

// guardSession guards a connection of the engine's as a whole, and numbers it unless it leads
// to a standby.
func (d *DB) guardSession(ctx context.Context, conn *pgx.Conn) error {
	standby, err := d.Queries(conn).GuardSession(ctx, queries.GuardSessionParams{LockTimeout: Milliseconds(HeldLimit), StatementTimeout: Milliseconds(sessionLimit)})
	if err == nil && !standby {
		d.Connections.Number(conn)
	}
	return err
}

// refusesPath reports whether a pooler refused the search_path as a parameter of
// the connection: PgBouncer knows few parameters, and this is none of them.
func refusesPath(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.Contains(server.Message, "startup parameter")
}

const (
	// ReadingConns is how many connections answer operators.
	ReadingConns = 3
	// readingLimit is how long the server works on one question.
	readingLimit = 5 * time.Second
	// readingIdle is how long a connection is kept that is not used.
	readingIdle = 5 * time.Second
)

// DialAlone opens a connection that belongs to no pool, as the pools open theirs.
func (d *DB) DialAlone(ctx context.Context) (*pgx.Conn, error) {
	config := d.Dial.ConnConfig.Copy()
	if d.Dial.BeforeConnect != nil {
		if err := d.Dial.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := d.Dial.AfterConnect(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}
