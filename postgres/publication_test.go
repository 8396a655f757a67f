package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// Debezium and upgrades by logical replication publish all tables. From then on
// PostgreSQL refuses deletes from a table without a replica identity.
func TestWorkGoesOnUnderAPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	store := openURL(t, url, "durable")
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "create publication everything for all tables")
	require.NoError(t, err)

	waiting := newRuns(3)
	_, err = store.Enqueue(t.Context(), waiting...)
	require.NoError(t, err)
	ended, err := store.Operate(t.Context(), durable.Order{Action: durable.CancelRuns, Runs: []durable.RunID{waiting[0].ID}, By: "me"})
	require.NoError(t, err)
	require.NotEmpty(t, ended)
	r, runs := claim(t, store, worker("w"), 3, time.Minute)
	require.Len(t, runs, 2)
	verdicts, err := store.Settle(t.Context(), []durable.Settlement{settlement(r, runs, durable.Outcome{Kind: durable.Success})})
	require.NoError(t, err)
	require.Equal(t, []durable.Verdict{durable.Accepted, durable.Accepted}, verdicts)
	requireConsistent(t, store)
}

func TestExamineFindsTablesThatAPublicationWouldStop(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	store := openURL(t, url, "durable")
	conn := connect(t, url)
	for _, step := range []struct{ statement, want string }{
		{"select", ""}, // as the migrations leave it: every table has one
		{"create table durable.notes (text text)", "warning: missing, so a publication of all tables would stop the workers: notes"},
		{"alter table durable.ready replica identity default", "notes, ready"},
		{"create publication everything for all tables", "failed: a publication has tables without one"},
		{"alter table durable.ready replica identity full", "update their rows: notes"},
		{"drop table durable.notes", ""},
	} {
		_, err := conn.Exec(t.Context(), step.statement)
		require.NoError(t, err)
		if said := found(t, store.Store)["replica identity"]; step.want == "" {
			require.Empty(t, said, step.statement)
		} else {
			require.Contains(t, said, step.want, step.statement)
		}
	}
}
