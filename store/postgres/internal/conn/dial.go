package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deadPeer is how long a peer may leave data unacknowledged.
const deadPeer = 15 * time.Second

// dialer makes connections that notice a peer that is gone.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		Control:         control,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
}

// ConnectHook changes the configuration of a connection before it is opened; see
// Config.Connect.
type ConnectHook = func(ctx context.Context, config *pgx.ConnConfig) error

// inTurn calls hooks one after another; nil: there is none.
func inTurn(hooks ...ConnectHook) ConnectHook {
	var all []ConnectHook
	for _, one := range hooks {
		if one != nil {
			all = append(all, one)
		}
	}
	if all == nil {
		return nil
	}
	return func(ctx context.Context, config *pgx.ConnConfig) error {
		for _, one := range all {
			if err := one(ctx, config); err != nil {
				return fmt.Errorf("prepare a connection: %w", err)
			}
		}
		return nil
	}
}

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

// both calls one function after another.
func both(first, second func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	if first == nil {
		return second
	}
	return func(ctx context.Context, conn *pgx.Conn) error {
		if err := first(ctx, conn); err != nil {
			return err
		}
		return second(ctx, conn)
	}
}

// know registers the types of our parameters with a connection, for when nothing is
// prepared.
func know(m *pgtype.Map) {
	if _, known := m.TypeForValue(UUIDs(nil)); known {
		return
	}
	m.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	m.RegisterDefaultPgType(UUIDs(nil), "_uuid")
}

// lend sends a batch on a connection of a pool that may be the caller's.
func lend(ctx context.Context, pool *pgxpool.Pool, b *pgx.Batch) pgx.BatchResults {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return failedBatch{err}
	}
	know(conn.Conn().TypeMap())
	return &lentBatch{conn.SendBatch(ctx, b), conn}
}

// lentBatch gives the connection back when it is closed.
type lentBatch struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

// Close ends the batch.
func (l *lentBatch) Close() error {
	err := l.BatchResults.Close()
	if l.conn != nil {
		l.conn.Release()
		l.conn = nil
	}
	return err
}

// failedBatch is a batch that got no connection.
type failedBatch struct{ err error }

// Exec says why.
func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }

// Query says why.
func (f failedBatch) Query() (pgx.Rows, error) { return nil, f.err }

// QueryRow says why.
func (f failedBatch) QueryRow() pgx.Row { return wrappedRow{nil, f.err} }

// Close says why.
func (f failedBatch) Close() error { return f.err }

// Tx is none.
func (failedBatch) Tx() pgx.Tx { return nil }
