package schema

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/db"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Migration is one step of the schema's history.
type Migration struct {
	Version       int
	Name          string
	MinCompatible int // the oldest program version that can serve the schema after it
	sql           string
	changes       string // the tables that it changes, in the order of its text
}

var (
	migrationName = regexp.MustCompile(`^(\d{4})_(\w+)\.sql$`)
	compatibility = regexp.MustCompile(`min_compatible: (\d+)`)
)

// migrations are those of the embedded files, in order. It panics where a file is
// not what the tests have seen.
var migrations = sync.OnceValue(func() []Migration { //nolint:gochecknoglobals // read once from the program itself
	entries, err := fs.ReadDir(db.Migrations, "migrations")
	if err != nil {
		panic(err)
	}
	all := make([]Migration, len(entries))
	for i, entry := range entries {
		text, err := fs.ReadFile(db.Migrations, "migrations/"+entry.Name())
		name := migrationName.FindStringSubmatch(entry.Name())
		oldest := compatibility.FindSubmatch(text)
		if err != nil || name == nil || oldest == nil {
			panic("postgres: migration " + entry.Name() + " is malformed")
		}
		all[i] = Migration{Name: name[2], sql: string(text), changes: strings.Join(changed(string(text)), " ")}
		all[i].Version, _ = strconv.Atoi(name[1])
		all[i].MinCompatible, _ = strconv.Atoi(string(oldest[1]))
	}
	return all
})

// text is the migration for a schema, without the note that it was applied.
func (m Migration) text(names *conn.Namespace) string {
	create := ""
	if m.Version == 1 {
		create = `create schema if not exists "` + names.Schema + "\";\n\n"
	}
	return create + names.Rename(m.sql)
}

// Migrate applies the migrations that the database lacks, each in a
// transaction of its own under an advisory lock: many may call it concurrently, and
// one that is killed leaves whole steps only. A step that changes a table which
// another process is reading waits two seconds at most, since who comes later
// waits behind it, and is then tried again, until ctx ends; the log says whom it
// waits for. It returns what it applied.
func (s *Schema) Migrate(ctx context.Context) ([]Migration, error) {
	var applied []Migration
	for _, m := range migrations() {
		done, err := s.migrateOne(ctx, m)
		if err != nil {
			return applied, s.db.Fail(fmt.Sprintf("migrate to version %d", m.Version), err)
		}
		if done {
			s.db.Log.Info("schema migrated", "event", "schema.migrated", "schema", s.db.Names.Schema, "version", m.Version, "name", m.Name)
			applied = append(applied, m)
		}
	}
	if len(applied) > 0 {
		s.forgetStatements(ctx)
	}
	return applied, nil
}

// forgetStatements forgets statements that were prepared before: they may have other results
// now. The connection for heartbeats stays open.
func (s *Schema) forgetStatements(ctx context.Context) {
	for _, pool := range s.db.Pools() {
		if pool != s.db.Beats.Pool {
			pool.Reset()
		}
	}
	for _, session := range s.db.Beats.Pool.AcquireAllIdle(ctx) {
		if session.Conn().DeallocateAll(ctx) != nil {
			_ = session.Conn().Close(ctx)
		}
		session.Release()
	}
}

// migrateOne applies a step, unless the database has it.
func (s *Schema) migrateOne(ctx context.Context, m Migration) (done bool, err error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if have, _, err := s.version(ctx, s.db.General); err != nil || have >= m.Version {
			return false, err
		}
		err = conn.InTx(ctx, s.db.General, func(tx pgx.Tx) (err error) {
			done, err = s.apply(ctx, tx, m)
			return err
		})
		if !inUse(err) || ctx.Err() != nil {
			return done && err == nil, err
		}
		s.sayWhomFor(ctx, m, pause)
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// apply does a step in a transaction: waits for others that migrate, for as long
// as they take, locks the tables, and changes them.
func (s *Schema) apply(ctx context.Context, tx pgx.Tx, m Migration) (done bool, err error) {
	q := s.db.Queries(tx)
	if err := q.Unlimited(ctx); err != nil {
		return false, err
	}
	waiting := time.AfterFunc(time.Second, func() {
		s.db.Log.Info("waiting for another process to migrate", "event", "schema.migration_elsewhere", "schema", s.db.Names.Schema)
	})
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", s.db.Names.Key("migrate"))
	waiting.Stop()
	if err != nil {
		return false, err
	}
	if have, _, err := s.version(ctx, tx); err != nil || have >= m.Version {
		return false, err
	}
	if err := s.lockTables(ctx, tx, m); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, m.text(s.db.Names), pgx.QueryExecModeSimpleProtocol); err != nil {
		return false, err
	}
	if err := s.refuseInvalid(ctx, tx); err != nil {
		return false, err
	}
	return true, q.SetMeta(ctx, queries.SetMetaParams{Version: int32(m.Version), MinCompatible: int32(m.MinCompatible)}) //nolint:gosec // small
}

// refuseInvalid refuses a step that found an index that was built ahead of it and is not
// complete: nothing would build it again.
func (s *Schema) refuseInvalid(ctx context.Context, tx pgx.Tx) error {
	names, err := s.db.Queries(tx).InvalidIndexes(ctx, queries.InvalidIndexesParams{SchemaName: s.db.Names.Schema})
	if err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w: incomplete indexes: %s; wait for CREATE INDEX CONCURRENTLY, or drop them and migrate again",
		store.ErrInvalid, strings.Join(names, ", "))
}

// version reads what has been applied.
func (s *Schema) version(ctx context.Context, in queries.DBTX) (have, minCompatible int, err error) {
	q := s.db.Queries(in)
	found, err := q.HasMeta(ctx, queries.HasMetaParams{SchemaName: s.db.Names.Schema})
	if err != nil || !found {
		return 0, 0, err
	}
	meta, err := q.Meta(ctx)
	return int(meta.Version), int(meta.MinCompatible), err
}

// Version returns the version that the database has, the one that this program
// brings, and the oldest program version that can serve what the database has.
func (s *Schema) Version(ctx context.Context) (have, want, minCompatible int, err error) {
	all := migrations()
	have, minCompatible, err = s.version(ctx, s.db.Engine)
	if err != nil {
		err = fmt.Errorf("schema version: %w", err)
	}
	return have, all[len(all)-1].Version, minCompatible, err
}

// SQL returns all migrations of a schema as plain SQL that any tool
// can run on a database that has none of them.
func SQL(schema string) string {
	names := &conn.Namespace{Schema: schema}
	var b strings.Builder
	for _, m := range migrations() {
		fmt.Fprintf(&b, "-- %04d %s\nbegin;\n\n%s\n", m.Version, m.Name, m.text(names))
		fmt.Fprintf(&b, "insert into \"%s\".meta (version, min_compatible) values (%d, %d)\n"+
			"on conflict (only_row) do update set version = excluded.version, min_compatible = excluded.min_compatible, migrated_at = now();\n\ncommit;\n",
			schema, m.Version, m.MinCompatible)
	}
	return b.String()
}

// Latest is the version of the schema that this program serves.
func Latest() int {
	all := migrations()
	return all[len(all)-1].Version
}
