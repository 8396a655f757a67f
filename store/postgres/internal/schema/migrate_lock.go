package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// How long a step may keep all others waiting while it waits for its locks.
// A heartbeat that comes later waits behind it, and workers lose their leases
// when too many do. It is longer than deadlock_timeout's default of a second,
// after which an autovacuum gives way.
const (
	lockEach = 1500 * time.Millisecond // for one table
	lockAll  = 2 * time.Second         // for all tables of a step

	firstPause = 2 * time.Second // between two tries, so that others get on
	lastPause  = 15 * time.Second
)

var changesTable = regexp.MustCompile(`(?i)(?:alter table|drop table|index (?:if not exists )?\w+ on) durable\.(\w+)`)

// changed names the tables that a step of this text changes, in its order.
func changed(text string) []string {
	names := []string{}
	for _, found := range changesTable.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, found[1]) {
			names = append(names, found[1])
		}
	}
	return names
}

// lockTables takes all locks of a step that others may have to end for, in one
// statement, so that one limit bounds the sum of the waits.
func (s *Schema) lockTables(ctx context.Context, tx pgx.Tx, m Migration) error {
	q := s.db.Queries(tx)
	tables, err := q.ExistingTables(ctx, queries.ExistingTablesParams{SchemaName: s.db.Names.Schema, Names: strings.Fields(m.changes)})
	if err != nil {
		return err
	}
	if err := q.Limits(ctx, queries.LimitsParams{LockTimeout: conn.Milliseconds(lockEach), StatementTimeout: conn.Milliseconds(lockAll)}); err != nil {
		return err
	}
	if len(tables) > 0 {
		for i, name := range tables {
			tables[i] = pgx.Identifier{s.db.Names.Schema, name}.Sanitize()
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE "+strings.Join(tables, ", ")); conn.Code(err) == conn.QueryCanceled {
			return fmt.Errorf("%w: %w", errInUse, err)
		} else if err != nil {
			return err
		}
	}
	// Moving rows takes as long as it takes; no other lock is waited for long.
	return q.Limits(ctx, queries.LimitsParams{LockTimeout: conn.Milliseconds(lockEach), StatementTimeout: "0"})
}

// errInUse says that the locks of a step took too long together.
var errInUse = errors.New("the tables are in use")

// inUse reports whether a step failed because others have its tables.
func inUse(err error) bool {
	c := conn.Code(err)
	return c == conn.LockNotAvailable || c == conn.DeadlockDetected || errors.Is(err, errInUse)
}

// sayWhomFor logs who keeps a step from its tables.
func (s *Schema) sayWhomFor(ctx context.Context, m Migration, pause time.Duration) {
	users, err := s.db.Queries(s.db.General).TableUsers(ctx, queries.TableUsersParams{SchemaName: s.db.Names.Schema, Names: strings.Fields(m.changes)})
	if err != nil {
		s.db.Log.Warn("the migration waits for tables that are in use", "event", "schema.migration_waits", "version", m.Version, "again_in", pause.String(), "error", err)
		return
	}
	texts := []string{}
	for _, u := range users {
		texts = append(texts, fmt.Sprintf("process %d (%s, role %s, %s, open for %v): %s", u.Pid, u.Application, u.Role, u.State,
			time.Duration(u.OpenSeconds)*time.Second, strings.Join(strings.Fields(u.Query), " ")))
	}
	s.db.Log.Warn("the migration waits for tables that are in use: end what holds them, if it does not end by itself (pg_terminate_backend)", "event", "schema.migration_blocked",
		"schema", s.db.Names.Schema, "version", m.Version, "name", m.Name, "tables", strings.Fields(m.changes), "used_by", texts, "again_in", pause.String())
}
