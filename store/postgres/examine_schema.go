package postgres

import (
	"context"
	"strings"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// examineIdentities looks for tables that a publication would make read-only.
func (s *Store) examineIdentities(ctx context.Context, f *store.Findings) error {
	rows, err := s.queries(s.general).ExamineIdentities(ctx, queries.ExamineIdentitiesParams{SchemaName: s.config.Schema})
	if err != nil {
		return err
	}
	var without, refused []string
	for _, row := range rows {
		without = append(without, row.Name)
		if row.Published {
			refused = append(refused, row.Name)
		}
	}
	const hint = "run durable-worker migrate up; a table of your own in this schema needs a primary key, or ALTER TABLE … REPLICA IDENTITY FULL"
	switch {
	case len(refused) > 0:
		f.Fail("replica identity", "a publication has tables without one, and PostgreSQL refuses to delete or update their rows: "+strings.Join(refused, ", "), hint)
	case len(without) > 0:
		f.Warn("replica identity", "missing, so a publication of all tables would stop the workers: "+strings.Join(without, ", "), hint)
	default:
		f.Fine("replica identity", "every table has one")
	}
	return nil
}
