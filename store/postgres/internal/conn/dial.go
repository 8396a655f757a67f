package conn

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
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
	m.RegisterDefaultPgType([]uuid.UUID(nil), "_uuid") // of generated parameters, where no statement is prepared
}
