package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	lookConns = 3
	// lookLimit is how long the server works on one question.
	lookLimit = 5 * time.Second
	// lookIdle is how long a connection is kept that is not used.
	lookIdle = 5 * time.Second
)

// openLooking makes the pool over which operators read: lists, counts, surveys. However
// many they are, they take no connection that enqueues or works, and change nothing.
func (s *Store) openLooking(ctx context.Context, base *pgxpool.Config) (err error) {
	c := base.Copy()
	c.MaxConns, c.MinConns, c.MinIdleConns = lookConns, 0, 0
	c.MaxConnIdleTime, c.HealthCheckPeriod = min(c.MaxConnIdleTime, lookIdle), min(c.HealthCheckPeriod, lookIdle/2)
	c.ConnConfig.RuntimeParams["application_name"] += " operate"
	if !s.unpinned { // behind a pooler the settings would be those of others too: see whole
		c.AfterConnect = both(c.AfterConnect, func(ctx context.Context, conn *pgx.Conn) error {
			return s.queries(conn).LookSession(ctx, queries.LookSessionParams{StatementTimeout: milliseconds(lookLimit)})
		})
	}
	s.looking, err = pgxpool.NewWithConfig(ctx, c)
	return err
}
