package examine

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
// by checking which process answers and whether a notification arrives.
func (e *Examiner) examineConnection(ctx context.Context, f *store.Findings) error {
	pooled, err := e.pooled(ctx)
	if err != nil {
		return err
	}
	mode := e.db.Dial.ConnConfig.DefaultQueryExecMode
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
	heard, err := e.heard(ctx)
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
func (e *Examiner) pooled(ctx context.Context) (bool, error) {
	conn, err := e.db.General.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	pid, err := e.db.Queries(conn).ExamineProcess(ctx)
	return pid != int64(conn.Conn().PgConn().PID()), err
}

// heard reports whether a notification of another connection arrives in time.
func (e *Examiner) heard(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := e.db.DialAlone(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	channel := e.db.Names.Channel() + "_" + rand.Text()[:8] // no other connection listens to it
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return false, err
	}
	if err := e.db.Queries(e.db.General).Notify(ctx, queries.NotifyParams{Channel: channel, Payloads: []string{"examine"}}); err != nil {
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

// longLost is how long a client that is gone, or frozen, may keep its locks
// before the examination warns.
const longLost = 15 * time.Minute

// examineRole examines what the role may do, and how long the transaction of a
// lost client stays open.
func (e *Examiner) examineRole(ctx context.Context, f *store.Findings) error {
	row, err := e.db.Queries(e.db.General).ExamineRole(ctx)
	if err != nil {
		return err
	}
	judgeRole(row.Name, row.Superuser, f)
	judgeLost(time.Duration(row.KeepaliveSeconds)*time.Second, time.Duration(row.IdleMilliseconds)*time.Millisecond, f)
	return nil
}

func judgeRole(name string, superuser bool, f *store.Findings) {
	if superuser {
		f.Warn("role", name+" is a superuser", "anyone who gets hold of its password has the server: give each program a role of its own (docs/deploy.md, database roles)")
		return
	}
	f.Fine("role", name+", no superuser")
}

// judgeLost judges how long a run stays locked by a transaction (CompleteIn,
// Guard) whose client is cut off or frozen. Reclaim skips the run until then. A
// keepalive of 0 is that of a Unix socket.
func judgeLost(keepalive, idle time.Duration, f *store.Findings) {
	ends := "never ended"
	if idle > 0 {
		ends = "ended after " + idle.String()
	}
	text := fmt.Sprintf("idle transactions are %s (idle_in_transaction_session_timeout), a lost peer is noticed after %v (tcp_keepalives_idle, _interval, _count)", ends, keepalive)
	switch {
	case keepalive > longLost && (idle == 0 || idle > longLost):
		f.Warn("lost clients", text, "a worker that is cut off inside CompleteIn or Guard keeps its run so long: "+
			"set tcp_keepalives_idle = 60, tcp_keepalives_interval = 10 and tcp_keepalives_count = 6 in postgresql.conf, or ALTER ROLE … SET idle_in_transaction_session_timeout = '5min'")
	default:
		f.Fine("lost clients", text)
	}
}
