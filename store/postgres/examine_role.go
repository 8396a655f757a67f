package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// longLost is how long a client that is gone, or frozen, may keep its locks
// before the examination warns.
const longLost = 15 * time.Minute

// examineRole looks at what the role may do, and at how long a transaction of a
// lost client stays open.
func (s *Store) examineRole(ctx context.Context, f *store.Findings) error {
	row, err := s.queries(s.general).ExamineRole(ctx)
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
// Guard) whose client is cut off or frozen: reclaim passes it over meanwhile. A
// keepalive of 0 is a Unix socket's.
func judgeLost(keepalive, idle time.Duration, f *store.Findings) {
	ends := "never"
	if idle > 0 {
		ends = "after " + idle.String()
	}
	text := fmt.Sprintf("idle transactions are ended %s (idle_in_transaction_session_timeout), a lost peer is noticed after %v (tcp_keepalives_idle, _interval, _count)", ends, keepalive)
	switch {
	case keepalive > longLost && (idle == 0 || idle > longLost):
		f.Warn("lost clients", text, "a worker that is cut off inside CompleteIn or Guard keeps its run so long: "+
			"set tcp_keepalives_idle = 60, tcp_keepalives_interval = 10 and tcp_keepalives_count = 6 in postgresql.conf, or ALTER ROLE … SET idle_in_transaction_session_timeout = '5min'")
	default:
		f.Fine("lost clients", text)
	}
}
