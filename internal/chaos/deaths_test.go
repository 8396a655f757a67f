package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

type mortalArgs struct{ N int }

var (
	afterDeath = durable.NewJob[durable.Death]("after-death", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
	mortal     = durable.NewJob[mortalArgs]("mortal", durable.OnDead(afterDeath), durable.MaxAttempts(2), durable.Retry(durable.Fixed(50*time.Millisecond)))
	fragile    = durable.NewJob[mortalArgs]("fragile", durable.OnDead(afterDeath), durable.OnCrash(store.CrashDead))
)

// registerMortal registers handlers that die permanently, after their attempts, and of crashes.
func registerMortal(app *durablecmd.App) {
	durable.Register(app.Worker, mortal, func(_ context.Context, run *durable.Run[mortalArgs]) error {
		if run.Args.N%2 == 0 {
			return durable.Permanent(errors.New("permanent"))
		}
		return errors.New("again and again")
	})
	durable.Register(app.Worker, fragile, func(ctx context.Context, _ *durable.Run[mortalArgs]) error {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		return nil
	})
	durable.Register(app.Worker, afterDeath, func(context.Context, *durable.Run[durable.Death]) error { return nil })
}

func TestOneRunFollowsEachDeathUnderKills_PostgreSQL(t *testing.T) { mourned(t, pgtest.Database(t)) }

func TestOneRunFollowsEachDeathUnderKills_SQLite(t *testing.T) { mourned(t, sqliteDSN(t)) }

// mourned lets workers be killed while a thousand runs die in several ways.
func mourned(t *testing.T, dsn string) {
	t.Helper()
	const rounds, each = 20, 50
	db := openStore(t, dsn)
	client := durable.NewClient(db)
	fleet := []*worker{startWorker(t, dsn, "w0"), startWorker(t, dsn, "w1"), startWorker(t, dsn, "w2")}
	for round := range rounds {
		var runs []durable.NewRun
		for n := range each {
			runs = append(runs, mortal.New(mortalArgs{n}))
		}
		runs = append(runs, fragile.New(mortalArgs{}), fragile.New(mortalArgs{}))
		_, err := client.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		<-time.After(50 * time.Millisecond)
		if round%2 == 1 {
			fleet[round/2%len(fleet)].signal(syscall.SIGKILL)
			fleet[round/2%len(fleet)] = startWorker(t, dsn, fmt.Sprint("w", round))
		}
	}
	until(t, db, 3*time.Minute, "every run has ended, and one run has followed each dead one", func(c map[durable.State]store.Count) bool {
		unfinished := c[durable.Pending].N + c[durable.Running].N
		return unfinished == 0 && c[durable.Dead].N >= rounds*each && c[durable.Succeeded].N == rounds*(each+2)
	})
	dead := map[durable.RunID]bool{}
	everyRun(t, db, store.Filter{States: []store.State{durable.Dead}}, func(r *store.Record) { dead[r.ID] = true })
	require.GreaterOrEqual(t, len(dead), rounds*each)
	everyRun(t, db, store.Filter{Jobs: []string{afterDeath.Name()}}, func(r *store.Record) {
		of, err := afterDeath.ArgsOf(*r)
		require.NoError(t, err)
		require.True(t, dead[of.Run], "run %s is followed twice, or is not dead", of.Run)
		require.NotEmpty(t, of.Reason)
		delete(dead, of.Run)
	})
	require.Empty(t, dead, "dead runs that no run has followed")
}

// everyRun reads all runs that pass a filter.
func everyRun(t *testing.T, db store.Store, filter store.Filter, each func(*store.Record)) {
	t.Helper()
	for filter.Limit = 200; ; {
		page, err := db.Runs(t.Context(), filter)
		require.NoError(t, err)
		for i := range page.Runs {
			each(&page.Runs[i])
		}
		if len(page.Runs) == 0 || page.Next == (store.RunID{}) {
			return
		}
		filter.Before = page.Next
	}
}
