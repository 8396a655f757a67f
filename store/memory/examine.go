package memory

import (
	"context"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Examine says what there is to know of this store.
func (s *Store) Examine(context.Context) (store.Findings, error) {
	var f store.Findings
	f.Warn("storage", "runs are kept in memory and end with this process", "use PostgreSQL or SQLite for work that must not be lost")
	s.mu.Lock()
	defer s.mu.Unlock()
	stranded := int64(0)
	for _, r := range s.byID {
		if s.stranded(r) {
			stranded++
		}
	}
	rules.FindStranded(&f, stranded, "")
	return f, nil
}
