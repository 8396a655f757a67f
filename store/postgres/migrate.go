package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// ErrSchema means that the database's schema is missing, older than this
// program needs, or too new for it.
var ErrSchema = conn.ErrSchema

// Migration is one step of the schema's history.
type Migration struct {
	Version       int
	Name          string
	MinCompatible int // the oldest program version that can serve the schema after it
}

// Migrate applies the migrations that the database lacks, each in a
// transaction of its own under an advisory lock: many may call it concurrently, and
// one that is killed leaves whole steps only. A step that changes a table which
// another process is reading waits two seconds at most, since who comes later
// waits behind it, and is then tried again, until ctx ends; the log says whom it
// waits for. It returns what it applied.
func (s *Store) Migrate(ctx context.Context) ([]Migration, error) {
	steps, err := s.schema.Migrate(ctx)
	var applied []Migration
	for _, step := range steps {
		applied = append(applied, Migration{Version: step.Version, Name: step.Name, MinCompatible: step.MinCompatible})
	}
	return applied, err
}

// Schema returns the version that the database has, the one that this program
// brings, and the oldest program version that can serve what the database has.
func (s *Store) Schema(ctx context.Context) (have, want, minCompatible int, err error) {
	return s.schema.Version(ctx)
}

// MigrationsSQL returns all migrations of a schema as plain SQL that any tool
// can run on a database that has none of them.
func MigrationsSQL(name string) string { return schema.SQL(name) }
