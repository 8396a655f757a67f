package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	sqlitedb "github.com/durable-worker/durable-worker/db/sqlite"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// A migration is one file of db/sqlite/migrations. It ends by writing its own
// number, and the oldest one that may still use the file, into meta.
type migration struct {
	name string
	text string
}

// migrations lists all of them, in order.
func migrations() []migration {
	names, _ := fs.Glob(sqlitedb.Files, "migrations/*.sql") // sorted
	list := make([]migration, len(names))
	for i, name := range names {
		text, _ := sqlitedb.Files.ReadFile(name)
		list[i] = migration{strings.TrimPrefix(name, "migrations/"), string(text)}
	}
	return list
}

// number is the version that the migration brings the schema to.
func (m migration) number() (n int) {
	_, _ = fmt.Sscanf(m.name, "%d_", &n) // zero is refused when it is applied
	return n
}

// latest is the version that this program was written for.
func latest() int {
	all := migrations()
	return all[len(all)-1].number()
}

// MigrationsSQL returns all migrations as one text that the sqlite3 shell can
// run on an empty file, each in its own transaction.
func MigrationsSQL() string {
	var b strings.Builder
	for _, m := range migrations() {
		fmt.Fprintf(&b, "-- %s\n%s\n%s\n%s\n\n", m.name, texts()["Begin"], strings.TrimSpace(m.text), texts()["Commit"])
	}
	return b.String()
}

// Migrate brings the schema up to date and returns how many migrations it
// applied. Each is one transaction; any number of processes may call it
// concurrently. A schema that is newer is left alone, and refused when it says that
// this program is too old for it.
func (s *Store) Migrate(ctx context.Context) (applied int, err error) {
	for _, m := range migrations() {
		done, err := s.migrateTo(ctx, applied, m)
		if err != nil {
			return applied, fmt.Errorf("migrate %s: %w", m.name, s.explain(err))
		}
		if done {
			applied++
		}
	}
	_, want, minCompatible, err := s.Schema(ctx)
	if err == nil && minCompatible > want {
		err = tooOld(want, minCompatible)
	}
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

// migrateTo applies one migration unless it has been.
func (s *Store) migrateTo(ctx context.Context, applied int, m migration) (done bool, err error) {
	number := m.number()
	if err := s.queue.enter(ctx, reclaims); err != nil {
		return false, err
	}
	defer s.queue.leave()
	if s.closed {
		return false, errClosed
	}
	if have, _, err := findSchema(ctx, s.conn); err == nil && have >= number && applied == 0 {
		return false, nil // nothing to wait for
	}
	err = s.transact(ctx, func(ctx context.Context) error {
		have, _, err := findSchema(ctx, s.conn)
		if err != nil || have >= number {
			return err
		}
		done = true
		if _, err := s.conn.ExecContext(ctx, m.text); err != nil {
			return err
		}
		if have, _, err = findSchema(ctx, s.conn); err == nil && have != number {
			err = fmt.Errorf("it says that it is number %d", have)
		}
		return err
	})
	return done && err == nil, err
}

// Schema reports the version of the file's schema (0: none), the one this
// program was written for, and the oldest program the file still allows.
func (s *Store) Schema(ctx context.Context) (have, want, minCompatible int, err error) {
	have, minCompatible, err = findSchema(ctx, s.reads)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("schema: %w", s.explain(err))
	}
	return have, latest(), minCompatible, nil
}

// asker is a connection or a pool.
type asker interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

func findSchema(ctx context.Context, on asker) (have, minCompatible int, err error) {
	var tables int
	if err := on.QueryRowContext(ctx, texts()["HasMeta"]).Scan(&tables); err != nil || tables == 0 {
		return 0, 0, err
	}
	err = on.QueryRowContext(ctx, texts()["FindSchema"]).Scan(&have, &minCompatible)
	return have, minCompatible, err
}

// requireSchema refuses a file that this program cannot work with.
func (s *Store) requireSchema(ctx context.Context, on asker) error {
	have, minCompatible, err := findSchema(ctx, on)
	if err != nil {
		return err
	}
	want := latest()
	if have < want {
		return fmt.Errorf("%w: the schema of %s has version %d, this program needs %d: run `migrate up` of your worker program, or call Store.Migrate", store.ErrSchema, s.file.path, have, want)
	}
	if minCompatible > want {
		return tooOld(want, minCompatible)
	}
	return nil
}

func tooOld(want, minCompatible int) error {
	return fmt.Errorf("%w: it requires program version %d or later (this is %d): upgrade the program", store.ErrSchema, minCompatible, want)
}

// schemaEvery is how often the schema's version is read again.
const schemaEvery = 20 * time.Second

// fits is until when the schema is taken to be one that this program can serve, by
// the monotonic clock.
type fits struct{ until atomic.Int64 }

// prepareFor is prepareWrites, and servesStill for what begins something: what is in
// hand is renewed and settled all the same.
func (s *Store) prepareFor(ctx context.Context, u urgency) error {
	err := s.prepareWrites(ctx)
	if err == nil && u != heartbeats && u != settles {
		err = s.servesStill(ctx, s.conn)
	}
	return err
}

// servesStill is requireSchema for a store that has been ready: now and again, since
// another program may have migrated the file.
func (s *Store) servesStill(ctx context.Context, on asker) error {
	now := lease.Elapsed()
	if s.fits.until.Load() > int64(now) {
		return nil
	}
	if err := s.requireSchema(ctx, on); err != nil {
		return err
	}
	s.fits.until.Store(int64(now + schemaEvery))
	return nil
}
