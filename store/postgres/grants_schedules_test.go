package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// A producer creates and replaces schedules, also in its transactions, and may not end them.
func TestGrants_AProducerPutsSchedules(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	producer := openAs(t, migrated, postgres.RoleProducer, newRole(t, server))
	put := func(to store.Scheduler, name, args string, rule durable.Rule) {
		run := durable.NewJob[string]("invoice", durable.OnQueue("a-new-one"))
		require.NoError(t, run.Schedule(t.Context(), to, name, args, rule))
	}
	client := durable.NewClient(producer)
	for _, args := range []string{"first", "second"} {
		put(client, "own", args, durable.Every(time.Hour))
		put(client, "own", args, durable.Every(time.Minute)) // planned again
		user := bindings[0].open(t, producer)
		put(user, "within", args, durable.Every(time.Hour))
		put(user, "within", args, durable.Every(time.Minute))
		require.NoError(t, user.Commit())
	}
	all, err := migrated.ListSchedules(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, s := range all {
		require.Equal(t, json.RawMessage(`"second"`), s.Args, s.Name)
		require.Equal(t, durable.Every(time.Minute), s.Rule, s.Name)
	}
	for _, action := range []store.ScheduleAction{store.PauseSchedule, store.DeleteSchedule} {
		forbidden(t, client.ChangeSchedule(t.Context(), "own", action, "p"), string(action))
	}
	conn := connect(t, producer.url)
	for _, statement := range []string{"update schedules set hash = 'x'", "update schedules set paused = true", "delete from schedules", "select from skips"} {
		_, err := conn.Exec(t.Context(), "set search_path to "+producer.schema+"; "+statement)
		forbidden(t, err, statement)
	}
}
