package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// Debezium and upgrades by logical replication publish all tables. From then on
// PostgreSQL refuses deletes from a table without a replica identity.
func TestWorkGoesOnUnderAPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	db := openURL(t, url, "durable")
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "create publication everything for all tables")
	require.NoError(t, err)

	waiting := newRuns(3)
	_, err = db.Enqueue(t.Context(), waiting...)
	require.NoError(t, err)
	ended, err := db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{waiting[0].ID}, By: "me"})
	require.NoError(t, err)
	require.NotEmpty(t, ended)
	r, runs := claim(t, db, worker("w"), 3, time.Minute)
	require.Len(t, runs, 2)
	verdicts, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})})
	require.NoError(t, err)
	require.Equal(t, []store.Verdict{store.Applied, store.Applied}, verdicts)
	requireConsistent(t, db)
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
