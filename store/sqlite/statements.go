package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	sqlitedb "github.com/durable-worker/durable-worker/db/sqlite"

	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// texts are the statements of db/sqlite/statements by name.
var texts = sync.OnceValue(func() map[string]string { //nolint:gochecknoglobals // read once from the program itself
	byName := make(map[string]string)
	names, _ := fs.Glob(sqlitedb.Files, "statements/*.sql")
	for _, name := range names {
		content, _ := sqlitedb.Files.ReadFile(name)
		parts := strings.Split(string(content), "-- name: ")
		for _, part := range parts[1:] {
			title, text, _ := strings.Cut(part, "\n")
			byName[strings.TrimSpace(title)] = withoutComments(text)
		}
	}
	return byName
})

func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}

// preparer is a connection or a pool.
type preparer interface {
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

// connection is one that closes its statements before itself. package sql does that for
// a pool and not for a single connection, and SQLite keeps one open that has statements:
// its log would never be written back to the file and removed.
type connection struct {
	*sql.Conn
	statements []*sql.Stmt
}

// PrepareContext prepares a statement that Close closes.
func (c *connection) PrepareContext(ctx context.Context, text string) (*sql.Stmt, error) {
	statement, err := c.Conn.PrepareContext(ctx, text)
	if err == nil {
		c.statements = append(c.statements, statement)
	}
	return statement, err
}

// Close closes the statements and gives the connection back.
func (c *connection) Close() error {
	var faults []error
	for _, statement := range c.statements {
		faults = append(faults, statement.Close())
	}
	return errors.Join(append(faults, c.Conn.Close())...)
}

// prepareNumbered prepares a statement of db/sqlite/statements that takes a list
// of numbers.
func prepareNumbered(ctx context.Context, on preparer, name string, into *byNumber) error {
	for room, statement := range map[int]**sql.Stmt{smallRoom: &into.few, largeRoom: &into.many} {
		text := strings.Replace(texts()[name], ":numbers:", strings.Repeat("?, ", room-1)+"?", 1)
		// The numbers of these parameters follow those that the text has given.
		var err error
		if *statement, err = on.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // closed with its connection
			return fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return nil
}

// prepareRows prepares the statement that stores many runs.
func prepareRows(ctx context.Context, on preparer, into **sql.Stmt) (err error) {
	row := "(?" + strings.Repeat(", ?", columnsOfRun-1) + ")"
	text := strings.Replace(texts()["InsertRuns"], ":rows:", strings.Repeat(row+", ", rowsPerStep-1)+row, 1)
	if *into, err = on.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // closed with its connection
		return fmt.Errorf("prepare InsertRuns: %w", err)
	}
	return nil
}

// prepareAll prepares statements of db/sqlite/statements. They live as long as
// what they are prepared on.
func prepareAll(ctx context.Context, on preparer, into map[string]**sql.Stmt) error {
	for name, statement := range into {
		text, ok := texts()[name]
		if !ok {
			panic("sqlite: there is no statement " + name)
		}
		var err error
		if *statement, err = on.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // closed with its connection
			return fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return nil
}

// control are the statements that work without a schema.
type control struct {
	begin, commit, rollback, version *sql.Stmt
}

// prepared are the statements of the writing connection.
type prepared struct {
	*queries.Queries
	claimStep, unready, dropUnready, successes *sql.Stmt
	start, settled, spare                      byNumber
	insertRuns                                 *sql.Stmt // nil in the caller's transaction
}

// lookups are the statements of the reading connections.
type lookups struct {
	*queries.Queries
	count, matching, these, sample, succeeded, stranded, limits *sql.Stmt
}
