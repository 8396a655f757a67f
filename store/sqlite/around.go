package sqlite

import (
	"context"
	"errors"
	"slices"

	sqlite3 "modernc.org/sqlite/lib"
)

// refusesRow reports whether SQLite refused a statement for a reason that may lie in
// one of its rows: a constraint, a trigger of a user's, a damaged page. It does
// not for what concerns the file, the machine or others at work at this moment.
func refusesRow(err error) bool {
	return primary(err) != 0 && !slices.Contains([]int{
		sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL,
		sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
	}, primary(err))
}

// writeAround is write for work that consists of parts. When SQLite refuses it,
// it is done again from its beginning, with each part under a savepoint of its
// own, so that a part that is refused stops no other.
func (s *Store) writeAround(ctx context.Context, u urgency, work func(context.Context, *change) error) error {
	err := s.write(ctx, u, work)
	if !refusesRow(err) || ctx.Err() != nil {
		return err
	}
	s.logger.Warn("the database refuses to change a row; continuing without it", "event", "store.row_refused", "error", err)
	return s.write(ctx, u, func(ctx context.Context, c *change) error {
		c.carefully = s.savepoint
		return work(ctx, c)
	})
}

// savepoint does work in the transaction under way, all of it or nothing. The
// caller is inside the write queue.
func (s *Store) savepoint(ctx context.Context, work func() error) error {
	if err := s.exec(ctx, "Savepoint"); err != nil {
		return err
	}
	err := work()
	if err != nil {
		err = errors.Join(err, s.exec(ctx, "RollbackToSavepoint"))
	}
	return errors.Join(err, s.exec(ctx, "ReleaseSavepoint"))
}

func (s *Store) exec(ctx context.Context, statement string) error {
	_, err := s.conn.ExecContext(ctx, texts()[statement])
	return err
}

// around does one part of the work. A part that is refused, where that can be
// rolled back alone, is skipped.
func (c *change) around(ctx context.Context, part func() error, passed func(error)) error {
	if c.carefully == nil {
		return part()
	}
	err := c.carefully(ctx, part)
	if !refusesRow(err) {
		return err
	}
	passed(err)
	return nil
}
