package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// A caller that waits for the row of a key, and finds it deleted and created again by
// others, has locked nothing yet: it looks again, or two could both take the key.
func TestKeyIsLockedWhenItsRowWasCreatedAgain(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	first := newRun(durable.Unique("k"))
	_, err := db.Enqueue(t.Context(), first)
	require.NoError(t, err)
	order := store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{first.ID}, By: "test"}
	_, err = db.Operate(t.Context(), order)
	require.NoError(t, err)
	gate, other := connect(t, db.url), connect(t, db.url)
	_, err = gate.Exec(t.Context(), "select pg_advisory_lock(hashtext('"+db.schema+"'))")
	require.NoError(t, err)
	for _, statement := range []string{
		"create function #.pass() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(hashtext('#')); return new; end $$",
		"create trigger pass before insert on #.runs for each row execute function #.pass()",
		"begin",
		"select from #.unique_keys for update",
	} {
		_, err = other.Exec(t.Context(), named(db, statement))
		require.NoError(t, err)
	}
	second := newRun(durable.Unique("k"))
	answer := enqueueSoon(t, db, second)
	_, err = other.Exec(t.Context(), named(db, `with d as (delete from #.unique_keys returning *) select * from d`))
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), named(db, `insert into #.unique_keys (job, key, run_id, latest) values ($1, 'k', $2, $2)`), first.Job, first.ID)
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "commit")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it stores the run
		var waits bool
		err := other.QueryRow(t.Context(), `select exists (select from pg_locks l join pg_stat_activity a using (pid)
			where l.locktype = 'advisory' and not l.granted and a.query like '%'||$1||'%')`, db.schema).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 10*time.Millisecond)
	var free []string
	rows, err := other.Query(t.Context(), named(db, "select key from #.unique_keys for update skip locked"))
	require.NoError(t, err)
	free, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, free, "the key of a caller that stores a run with it is locked")
	_, err = gate.Exec(t.Context(), "select pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.Equal(t, store.Receipt{ID: second.ID}, <-answer)
	requireConsistent(t, db)
}

// named writes a statement for the store's schema.
func named(store opened, statement string) string {
	return strings.ReplaceAll(statement, "#", store.schema)
}
