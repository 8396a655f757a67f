package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
)

// watch is one empty place for a contender's runs, and what looks at it from
// outside while it is measured.
type watch struct {
	target string
	server *server   // nil: not on PostgreSQL
	conn   *pgx.Conn // of the observer, in the contender's database
	pid    int       // of the server whose CPU counts
	drop   func()
}

// engine is where a contender keeps its runs.
type engine string

const (
	onPostgres engine = "postgres"
	onSQLite   engine = "sqlite"
	onRedis    engine = "redis"
)

// place makes an empty place and the contender's schema in it.
func (b *bench) place(ctx context.Context, contenderName string, on engine) (*watch, error) {
	c, err := contenderOf(contenderName)
	if err != nil {
		return nil, err
	}
	w, err := b.emptyPlace(ctx, on)
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, w.target); err != nil {
		w.close()
		return nil, fmt.Errorf("prepare %s: %w", contenderName, err)
	}
	return w, nil
}

// emptyPlace makes an empty place.
func (b *bench) emptyPlace(ctx context.Context, on engine) (w *watch, err error) {
	switch on {
	case onSQLite:
		b.sequence++
		path := filepath.Join(b.dir, fmt.Sprintf("runs-%d.db", b.sequence))
		remove := func() {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(path + suffix)
			}
		}
		return &watch{target: "sqlite:" + path, drop: remove}, nil
	case onRedis:
		w = &watch{target: b.redis.target(), pid: b.redis.process.Process.Pid, drop: func() {}}
		client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: w.target})
		return w, errors.Join(client.FlushAll(ctx).Err(), client.Close())
	default:
		return b.server.place(ctx)
	}
}

func (s *server) place(ctx context.Context) (*watch, error) {
	name, err := s.database(ctx)
	if err != nil {
		return nil, err
	}
	w := &watch{target: s.url(loadName, name), server: s, pid: s.process.Process.Pid}
	w.drop = func() { s.drop(ctx, name) }
	if w.conn, err = pgx.Connect(ctx, s.url(observerName, name)); err != nil {
		w.drop()
		return nil, err
	}
	_, err = w.conn.Exec(ctx, "SET enable_seqscan = off") // for exists; costs nothing elsewhere
	return w, err
}

func (w *watch) close() {
	if w.conn != nil {
		_ = w.conn.Close(context.Background())
	}
	w.drop()
}

func (w *watch) exists(ctx context.Context, sql string) (found bool, err error) {
	err = w.conn.QueryRow(ctx, sql).Scan(&found)
	return found, err
}

func (w *watch) count(ctx context.Context, sql string) (n int, err error) {
	err = w.conn.QueryRow(ctx, sql).Scan(&n)
	return n, err
}

// vacuum writes down what a long life would have: statistics and hint bits.
func (w *watch) vacuum(ctx context.Context) error {
	if w.conn == nil {
		return nil
	}
	_, err := w.conn.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// hold opens a transaction whose snapshot keeps dead rows from being removed.
func (w *watch) hold(ctx context.Context) (release func(), err error) {
	conn, err := pgx.ConnectConfig(ctx, w.conn.Config())
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		release()
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT count(*) FROM pg_class"); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// spent is what the server has spent so far.
type spent struct {
	cpu, machine          time.Duration
	wal, statements       float64
	updated, hot, deleted float64 // row versions
}

// fast reads what changes with time: it is asked at the instants between which
// the clock runs.
func (w *watch) fast(ctx context.Context) (s spent, err error) {
	s.machine = machineCPU()
	if w.pid == 0 {
		return s, nil
	}
	if s.cpu, err = familyCPU(w.pid); err != nil || w.conn == nil {
		return s, err
	}
	err = w.conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&s.wal)
	return s, err
}

// alone waits until the contender's connections have ended, for they tell what
// they did when they do.
func (w *watch) alone(ctx context.Context) error {
	if w.conn == nil {
		return nil
	}
	var fault error
	err := until(ctx, func() bool {
		connected, err := w.exists(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = '"+loadName+"')")
		fault = err
		return err != nil || !connected
	}, 10*time.Second)
	return errors.Join(fault, err)
}

// slow reads what the server gathers when its connections end.
func (w *watch) slow(ctx context.Context, s *spent) error {
	if w.conn == nil {
		return nil
	}
	err := w.conn.QueryRow(ctx, `SELECT coalesce(sum(n_tup_upd), 0)::float8, coalesce(sum(n_tup_hot_upd), 0)::float8, coalesce(sum(n_tup_del), 0)::float8
		FROM pg_stat_user_tables`).Scan(&s.updated, &s.hot, &s.deleted)
	if err != nil || !w.server.statements {
		return err
	}
	return w.maintenance(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT coalesce(sum(calls), 0)::float8 "+fromStatements, w.conn.Config().Database).Scan(&s.statements)
	})
}

const fromStatements = `FROM pg_stat_statements WHERE userid = '` + loadName + `'::regrole AND dbid = (SELECT oid FROM pg_database WHERE datname = $1)`

// statement is one statement's part of the server's time.
type statement struct {
	Calls int64
	Milli float64 // of execution, in all
	Plans int64
	Plan  float64 // milliseconds of planning, in all
	Rows  int64
	WAL   float64
	Text  string
}

// statements lists what the contender asked of the server since forget.
func (w *watch) statements(ctx context.Context) (list []statement, err error) {
	err = w.maintenance(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT calls, total_exec_time, plans, total_plan_time, rows, wal_bytes::float8, left(regexp_replace(regexp_replace(query, '--[^\n]*', '', 'g'), '\s+', ' ', 'g'), 110) `+
			fromStatements+" ORDER BY total_exec_time + total_plan_time DESC LIMIT 8", w.conn.Config().Database)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
		return err
	})
	return list, err
}

// forget begins the list of statements again.
func (w *watch) forget(ctx context.Context) error {
	if w.conn == nil || !w.server.statements {
		return nil
	}
	return w.server.execute(ctx, "SELECT pg_stat_statements_reset()")
}

// maintenance runs a question in the database that has the extension.
func (w *watch) maintenance(ctx context.Context, ask func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, w.server.url(observerName, "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return ask(conn)
}
