package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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

func (s *Store) pools() []*pgxpool.Pool {
	var pools []*pgxpool.Pool
	for _, pool := range []*pgxpool.Pool{s.general, s.engine, s.beats.pool, s.reading} {
		if pool != nil {
			pools = append(pools, pool)
		}
	}
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
	base.BeforeConnect = inTurn(s.options.Connect)
	prepareConfig(base)
	s.dial = base
	general := base.Copy()
	if s.options.MaxConns > 0 {
		general.MaxConns = s.options.MaxConns
		general.MinConns = min(general.MinConns, general.MaxConns)
	}
	beats := s.beats.configured(base)
	if s.options.Operators {
		if s.options.MaxConns == 0 {
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
	if s.options.Operators {
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
		s.log.Warn("statement_timeout is short for this role or database: calls that set no limit of their own may fail", "event", "store.statement_timeout_short",
			"statement_timeout", limit.String(), "want", "5s or more")
	}
	if off := server.Now.Sub(sent); off > time.Since(sent.Add(-time.Second)) || off < -time.Second {
		s.log.Info("the database's clock differs from this machine's; the database's decides", "event", "clock.differs", "by", off.Round(time.Millisecond).String())
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
