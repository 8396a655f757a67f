package conn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// ReadingConns is how many connections answer operators.
	ReadingConns = 3
	// readingLimit is how long the server works on one question.
	readingLimit = 5 * time.Second
	// readingIdle is how long a connection is kept that is not used.
	readingIdle = 5 * time.Second
)

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
