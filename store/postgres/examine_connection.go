package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// examineConnection finds out what is between this program and the server,
// by asking whose answers come and whether a notification does.
func (s *Store) examineConnection(ctx context.Context, f *store.Findings) error {
	pooled, err := s.pooled(ctx)
	if err != nil {
		return err
	}
	mode := s.dial.ConnConfig.DefaultQueryExecMode
	prepares := mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe
	switch {
	case pooled && prepares:
		f.Warn("pooler", "one is between this program and the server, and statements are prepared",
			"add default_query_exec_mode=exec to the address, unless the pooler keeps prepared statements (pgbouncer: max_prepared_statements)")
	case pooled:
		f.Fine("pooler", "one is between this program and the server, and nothing is prepared")
	default:
		f.Fine("pooler", "none")
	}
	heard, err := s.heard(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		f.Warn("notifications", fmt.Sprintf("listening failed: %v", err), "workers poll; set DURABLE_NOTIFY=false to say so")
	case !heard:
		f.Warn("notifications", "none arrived", "a transaction pooler drops them: workers poll; set DURABLE_NOTIFY=false, or give them an address without the pooler")
	default:
		f.Fine("notifications", "they arrive")
	}
	return nil
}

// pooled reports whether another process opened the connection to the server: the
// process that answers is then not the one that the connection began with.
func (s *Store) pooled(ctx context.Context) (bool, error) {
	conn, err := s.general.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	pid, err := s.queries(conn).ExamineProcess(ctx)
	return pid != int64(conn.Conn().PgConn().PID()), err
}

// heard reports whether a notification of another connection arrives in time.
func (s *Store) heard(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := s.dialAlone(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	channel := s.names.channel() + "_" + rand.Text()[:8] // no other connection listens to it
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return false, err
	}
	if err := s.queries(s.general).Notify(ctx, queries.NotifyParams{Channel: channel, Payloads: []string{"examine"}}); err != nil {
		return false, err
	}
	quiet, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = conn.WaitForNotification(quiet)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}
