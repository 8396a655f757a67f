package sqlite_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestSkipsArePrunedByEachSchedule(t *testing.T) {
	t.Parallel()
	s, db, _ := sweepable(t, newPath(t))
	declare := func() {
		declaration := store.Declaration{Worker: worker()}
		for _, name := range []string{"many", "few"} {
			declaration.Schedules = append(declaration.Schedules, store.Schedule{
				Name: name, Hash: "h", Job: "tick", Queue: "default", MaxAttempts: 1, Args: json.RawMessage("{}"), Rule: store.Every(time.Hour),
			})
		}
		require.NoError(t, s.Declare(t.Context(), declaration))
	}
	declare()
	for name, n := range map[string]int{"many": 1200, "few": 3} {
		_, err := db.Exec(`WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?2)
			INSERT INTO skips (schedule, first_at, last_at, reason) SELECT ?1, i, i, 'overlap' FROM c`, name, n)
		require.NoError(t, err)
	}
	declare()
	require.Equal(t, 1000, count(t, db, "SELECT count(*) FROM skips WHERE schedule = 'many'"))
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM skips WHERE schedule = 'few'"))
	require.Equal(t, 201, count(t, db, "SELECT min(first_at) FROM skips WHERE schedule = 'many'"), "the oldest are gone")
}
