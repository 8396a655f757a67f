package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// primary is the SQLite code of an error without its extension, or 0.
func primary(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool { return primary(err) == sqlite3.SQLITE_BUSY }

// explain says in a person's words what keeps the file from being used.
func (s *Store) explain(err error) error {
	switch primary(err) {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("no space left for %s: %w", s.file.path, err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s is not a SQLite database: %w", s.file.path, err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%s cannot be written: %w", s.file.path, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%s is damaged: %w", s.file.path, err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("reading or writing %s: %w", s.file.path, err)
	case sqlite3.SQLITE_CANTOPEN:
		return s.unopened(err)
	default:
		return err
	}
}

// handles is how many descriptors SQLite may need for one more connection: the file, its log,
// their index and the directory.
const handles = 4

// unopened adds what the system says to SQLite's "unable to open database file", which is
// silent about a process that has too few descriptors left. It opens the directory: to close the
// file itself would end the locks that SQLite has on it.
func (s *Store) unopened(err error) error {
	for range handles {
		dir, fault := os.Open(filepath.Dir(s.file.path))
		if fault != nil {
			return fmt.Errorf("%w: %w", err, fault)
		}
		defer func() { _ = dir.Close() }() // nothing was written
	}
	return err
}
