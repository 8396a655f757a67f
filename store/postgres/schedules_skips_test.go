package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestSkipsArePrunedByEachSchedule(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	conn := connect(t, s.url)
	declare := func() {
		declaration := store.Declaration{Worker: worker("w")}
		for _, name := range []string{"many", "few"} {
			declaration.Schedules = append(declaration.Schedules, store.Schedule{
				Name: name, Hash: "h", Job: "tick", Queue: "default", MaxAttempts: 1, Args: json.RawMessage("{}"), Rule: store.Every(time.Hour),
			})
		}
		require.NoError(t, s.Declare(t.Context(), declaration))
	}
	declare()
	for name, n := range map[string]int{"many": 1200, "few": 3} {
		s.exec(t, conn, `insert into %s.skips (schedule, first_at, last_at, reason)
			select (select id from %s.schedules where name = $1), now(), now() + make_interval(secs => i), 'overlap' from generate_series(1, $2::int) i`, name, n)
	}
	declare()
	skips := func(name string) int {
		return s.count(t, conn, "select count(*) from %s.skips where schedule = (select id from %s.schedules where name = $1)", name)
	}
	require.Equal(t, 1000, skips("many"))
	require.Equal(t, 3, skips("few"))
	require.Zero(t, s.count(t, conn, `select count(*) from %s.skips where schedule = (select id from %s.schedules where name = 'many')
		and last_at < first_at + interval '201 seconds'`), "the oldest are gone")
}
