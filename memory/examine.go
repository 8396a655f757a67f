package memory

import (
	"context"

	"github.com/durable-worker/durable-worker/durable"
)

// Examine says the one thing there is to know of this store.
func (s *Store) Examine(context.Context) (durable.Findings, error) {
	var f durable.Findings
	f.Warn("storage", "runs are kept in memory and end with this process", "use PostgreSQL or SQLite for work that must not be lost")
	return f, nil
}
