package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// keyedDoors are the ways to enqueue a run with the key k in a caller's transaction.
func keyedDoors() map[string]func(t *testing.T, in user, db opened) (store.RunID, error) {
	throughTx := func(option durable.Option) func(*testing.T, user, opened) (store.RunID, error) {
		return func(t *testing.T, in user, _ opened) (id store.RunID, err error) {
			receipts, err := in.Enqueue(context.WithoutCancel(t.Context()), newRun(option))
			if err == nil {
				id = receipts[0].ID
			}
			return id, err
		}
	}
	return map[string]func(*testing.T, user, opened) (store.RunID, error){
		"unique":     throughTx(durable.Unique("k")),
		"unique for": throughTx(durable.UniqueFor("k", time.Millisecond)),
		"replace":    throughTx(durable.Replace("k")),
		"debounce":   throughTx(durable.Debounce("k", time.Second, time.Minute)),
		"function": func(_ *testing.T, in user, db opened) (store.RunID, error) {
			text, err := in.query("select " + db.schema + ".enqueue('" + newRun().Job + "', key => 'k', undeclared => true)::text")
			if err != nil {
				return store.RunID{}, err
			}
			return uuid.Parse(text)
		},
	}
}

// isolation is a level of isolation, and whether a transaction of it reads from one snapshot.
type isolation struct {
	level  string
	frozen bool
}

// eachKeyedDoor calls a function for each driver, isolation and door, with a store of its own.
func eachKeyedDoor(t *testing.T, do func(t *testing.T, db opened, i isolation, begin func() user, enqueue func(user) (store.RunID, error))) {
	t.Helper()
	for _, binding := range bindings {
		if binding.name != "pgx" && binding.name != "stdlib" && binding.name != "lib-pq" {
			continue
		}
		for _, i := range []isolation{{"read committed", false}, {"repeatable read", true}, {"serializable", true}} {
			for name, door := range keyedDoors() {
				t.Run(fmt.Sprintf("%s/%s/%s", binding.name, i.level, name), func(t *testing.T) {
					t.Parallel()
					db := openEmpty(t, pgtest.Server(t))
					begin := func() user {
						in := binding.open(t, db)
						require.NoError(t, in.exec("set transaction isolation level "+i.level))
						_, err := in.query("select count(*)::text from " + db.schema + ".runs") // takes the snapshot
						require.NoError(t, err)
						return in
					}
					do(t, db, i, begin, func(in user) (store.RunID, error) { return door(t, in, db) })
				})
			}
		}
	}
}

// requireRepeat wants what tells a caller to repeat its transaction.
func requireRepeat(t *testing.T, err error) {
	t.Helper()
	var server interface{ SQLState() string }
	require.Error(t, err)
	require.True(t, errors.As(err, &server), err)
	require.Equal(t, "40001", server.SQLState(), err)
}

// operateOn changes a run as an operator does.
func operateOn(t *testing.T, db opened, action store.RunAction, id store.RunID) {
	t.Helper()
	changed, err := db.Operate(t.Context(), store.RunCommand{Action: action, Runs: []store.RunID{id}, By: "test"})
	require.NoError(t, err)
	require.Equal(t, store.RunChanged, changed[0].Result)
}

// unfinished counts the runs with a key that have not ended.
func (o opened) unfinished(t *testing.T) int {
	t.Helper()
	return o.count(t, connect(t, o.url), "select count(*) from %s.runs where key = 'k' and state < 2")
}

// A run that has ended since the transaction's snapshot is not named as the one that holds the
// key: nobody would execute anything.
func TestKeyedTx_TheHolderHasEndedMeanwhile(t *testing.T) {
	t.Parallel()
	eachKeyedDoor(t, func(t *testing.T, db opened, i isolation, begin func() user, enqueue func(user) (store.RunID, error)) {
		first := newRun(durable.Unique("k"))
		_, err := db.Enqueue(t.Context(), first)
		require.NoError(t, err)
		in := begin()
		operateOn(t, db, store.CancelRuns, first.ID)
		id, err := enqueue(in)
		if i.frozen {
			requireRepeat(t, err)
			in.Rollback()
			in = begin()
			id, err = enqueue(in)
		}
		require.NoError(t, err)
		require.NotEqual(t, first.ID, id)
		require.NoError(t, in.Commit())
		require.Equal(t, 1, db.unfinished(t))
		requireConsistent(t, db)
	})
}

// Nor does a key go to a second run when its holder, which had ended in the snapshot, is
// pending again.
func TestKeyedTx_TheHolderIsPendingAgain(t *testing.T) {
	t.Parallel()
	eachKeyedDoor(t, func(t *testing.T, db opened, i isolation, begin func() user, enqueue func(user) (store.RunID, error)) {
		first := newRun(durable.Unique("k"))
		_, err := db.Enqueue(t.Context(), first)
		require.NoError(t, err)
		operateOn(t, db, store.CancelRuns, first.ID)
		in := begin()
		operateOn(t, db, store.RetryRuns, first.ID)
		id, err := enqueue(in)
		if i.frozen {
			requireRepeat(t, err)
			in.Rollback()
			in = begin()
			id, err = enqueue(in)
		}
		require.NoError(t, err)
		require.Equal(t, first.ID, id)
		require.NoError(t, in.Commit())
		require.Equal(t, 1, db.unfinished(t))
		requireConsistent(t, db)
	})
}

// A holder that is as it was is named, and a transaction that stays open is not in the way of
// its worker.
func TestKeyedTx_TheHolderIsAsItWas(t *testing.T) {
	t.Parallel()
	eachKeyedDoor(t, func(t *testing.T, db opened, _ isolation, begin func() user, enqueue func(user) (store.RunID, error)) {
		first := newRun(durable.Unique("k"))
		_, err := db.Enqueue(t.Context(), first)
		require.NoError(t, err)
		r, err := request(t.Context(), db, worker("w"), 1, time.Minute)
		require.NoError(t, err)
		runs, err := db.Claim(t.Context(), r)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		in := begin()
		id, err := enqueue(in)
		require.NoError(t, err)
		free := db.count(t, connect(t, db.url), "select count(*) from (select from %s.runs where id = $1 for update skip locked) free", first.ID)
		require.Equal(t, 1, free, "the row of the run that is executing is not locked")
		verdicts, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})})
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Applied}, verdicts)
		require.NoError(t, in.Commit())
		if id == first.ID { // otherwise it was replaced, which a running one is not: then there are two
			require.Zero(t, db.unfinished(t))
		}
		requireConsistent(t, db)
	})
}
