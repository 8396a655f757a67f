package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// longLost is how long a client that is gone, or frozen, may keep its locks
// before the examination warns.
const longLost = 15 * time.Minute

// examineRole looks at what the role may do, and at how long a transaction of a
// lost client stands.
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
		f.Warn("role", name+" is a superuser", "whoever gets hold of its password has the server: give each program a role of its own (docs/deploy.md, database roles)")
		return
	}
	f.Fine("role", name+", no superuser")
}

// examinePrivileges looks for privileges that the role lacks for what its program
// does: to work, or at least to enqueue, or to read.
func (s *Store) examinePrivileges(ctx context.Context, f *store.Findings) error {
	const name = "privileges"
	const hint = "have the owner of the schema run what `migrate grants --for worker` prints; nothing, if the program "
	lacks := map[Role]string{}
	for _, role := range []Role{RoleWorker, RoleProducer, RoleReader} {
		rows, err := s.queries(s.general).MissingPrivileges(ctx, needs(role, s.config.Schema))
		if err != nil {
			return err
		}
		lacks[role] = lacking(rows)
	}
	switch {
	case lacks[RoleWorker] == "":
		f.Fine(name, "the role may do all that workers and operators do")
	case lacks[RoleProducer] == "":
		f.Warn(name, "the role may enqueue, and cannot work: it lacks "+lacks[RoleWorker], hint+"only enqueues")
	case lacks[RoleReader] == "":
		f.Warn(name, "the role may only read: to enqueue it lacks "+lacks[RoleProducer], hint+"only reads")
	default:
		f.Fail(name, "the role lacks "+lacks[RoleReader], hint+"only counts for an autoscaler")
	}
	return nil
}

// needs lists what a role has to have, one privilege at a time.
func needs(role Role, schema string) queries.MissingPrivilegesParams {
	list := queries.MissingPrivilegesParams{SchemaName: schema}
	given := slices.Concat(privileges[role], regained[role])
	if slices.ContainsFunc(given, func(p privilege) bool { return p.on == everything }) {
		given = append(given, privilege{"SELECT", "meta, audit"})
	}
	for _, one := range given {
		may, columns, _ := strings.Cut(strings.TrimSuffix(one.may, ")"), " (")
		for table := range strings.SplitSeq(one.on, ", ") {
			for privilege := range strings.SplitSeq(may, ", ") {
				for column := range strings.SplitSeq(columns, ", ") {
					list.Privileges, list.Tables, list.Columns = append(list.Privileges, privilege), append(list.Tables, table), append(list.Columns, column)
				}
			}
		}
	}
	return list
}

// lacking names the first of the privileges that are missing.
func lacking(rows []queries.MissingPrivilegesRow) string {
	const most = 6
	var words []string
	for _, row := range rows[:min(len(rows), most)] {
		words = append(words, row.May+" on "+row.TableName)
	}
	if len(rows) > most {
		words = append(words, fmt.Sprintf("and %d more", len(rows)-most))
	}
	return strings.Join(words, ", ")
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
