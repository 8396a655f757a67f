package conn

import (
	"context"
	"hash/fnv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/db"
	"github.com/durable-worker/durable-worker/internal/sqlwords"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// DefaultSchema is the schema that the statements name as they are written.
const DefaultSchema = "durable"

// words are those of db/words.sql. It panics where the file is not what the tests have seen.
var words = sync.OnceValue(func() sqlwords.Words { //nolint:gochecknoglobals // read once from the program itself
	words, err := sqlwords.Parse(db.Words)
	if err != nil {
		panic("postgres: words.sql: " + err.Error())
	}
	return words
})

// Namespace rewrites statements, each once: it spells their words out, and names the schema.
type Namespace struct {
	Schema string
	texts  sync.Map // statement as generated -> statement as sent
}

// sql returns the statement as it is sent.
func (n *Namespace) sql(text string) string {
	if known, ok := n.texts.Load(text); ok {
		return known.(string) //nolint:forcetypeassert // only strings are stored
	}
	sent := words().SpellOut(text)
	if n.Schema != DefaultSchema {
		sent = n.Rename(sent)
	}
	n.texts.Store(text, sent)
	return sent
}

// Rename writes a statement for the schema.
func (n *Namespace) Rename(text string) string {
	return strings.ReplaceAll(text, DefaultSchema+".", `"`+n.Schema+`".`)
}

// Channel is what workers listen on.
func (n *Namespace) Channel() string { return n.Schema + "_wake" }

// FreedChannel is what those who wait for locks listen on.
func (n *Namespace) FreedChannel() string { return n.Schema + "_freed" }

// Key makes the number of an advisory lock.
func (n *Namespace) Key(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("durable/" + n.Schema + "/" + purpose))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits will do
}

// named is a connection, a pool or a transaction that speaks our schema.
type named struct {
	db    queries.DBTX
	names *Namespace
}

func (n named) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return n.db.Exec(ctx, n.names.sql(sql), args...)
}

func (n named) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return n.db.Query(ctx, n.names.sql(sql), args...)
}

func (n named) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return n.db.QueryRow(ctx, n.names.sql(sql), args...)
}

// Our statements name the schema of every table, but few name that of a function
// or an operator. Where the arguments of a call are not exactly those of
// pg_catalog's, PostgreSQL prefers one of another schema in the search_path that
// fits better, and runs it as our role. So our own connections search pg_catalog
// only. Statements that go through the caller's transaction, whose settings
// are the caller's, have exact arguments or say pg_catalog themselves.

// pinnedPath is the search_path of our own connections.
const pinnedPath = "pg_catalog"
