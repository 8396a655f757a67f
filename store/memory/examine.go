package memory

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Examine says what there is to know of this store.
func (s *Store) Examine(context.Context) (store.Findings, error) {
	var f store.Findings
	f.Warn("storage", "runs are kept in memory and end with this process", "use PostgreSQL or SQLite for work that must not be lost")
	s.mu.Lock()
	defer s.mu.Unlock()
	stranded := 0
	for _, r := range s.byID {
		if s.stranded(r) {
			stranded++
		}
	}
	if stranded > 0 {
		f.Warn("running runs", fmt.Sprintf("%d have no lease: no worker executes them and nothing expires", stranded),
			"keep a worker running: its sweep hands them back")
	} else {
		f.Fine("running runs", "each has a lease")
	}
	return f, nil
}
