package chaos_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

type (
	pairArgs   struct{ At time.Time }
	branchArgs struct{ Others int }
	splitArgs  struct{ Pages int }
	tallyArgs  struct{ Of store.BatchID }
)

var (
	pair   = durable.NewJob[pairArgs]("pair", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
	branch = durable.NewJob[branchArgs]("branch", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
	split  = durable.NewJob[splitArgs]("split", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
	tally  = durable.NewJob[tallyArgs]("tally", durable.MaxAttempts(20), durable.Retry(durable.Fixed(50*time.Millisecond)))
)

// registerBatches registers members that end at an instant, members that add others, a handler with a
// batch of its own, and what comes after a batch.
func registerBatches(app *durablecmd.App) {
	durable.Register(app.Worker, pair, func(ctx context.Context, run *durable.Run[pairArgs]) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(run.Args.At)):
			return nil
		}
	})
	durable.Register(app.Worker, branch, func(ctx context.Context, run *durable.Run[branchArgs]) error {
		for i, others := range []int{run.Args.Others / 2, run.Args.Others - run.Args.Others/2} {
			if others == 0 {
				continue
			}
			next := branch.New(branchArgs{others - 1}, durable.InBatch(run.Batch()))
			next.ID = durable.IDFrom(run.ID, "branch", i)
			if _, err := run.Enqueue(ctx, next); err != nil {
				return err
			}
		}
		return nil
	})
	durable.Register(app.Worker, split, func(ctx context.Context, run *durable.Run[splitArgs]) error {
		batch := run.NewBatch("pages")
		if err := pair.FanOut(ctx, run, batch, run.Args.Pages, func(int) pairArgs { return pairArgs{} }); err != nil {
			return err
		}
		counts, err := batch.Wait(ctx)
		if err != nil {
			return err
		}
		if want := int64(run.Args.Pages); counts.Members != want || counts.Succeeded != want {
			return durable.Permanent(fmt.Errorf("of %d pages came %+v", run.Args.Pages, counts))
		}
		return nil
	})
	durable.Register(app.Worker, tally, func(context.Context, *durable.Run[tallyArgs]) error { return nil })
}

func TestBatchesEndOnceUnderKills_PostgreSQL(t *testing.T) { gathered(t, pgtest.Database(t)) }

func TestBatchesEndOnceUnderKills_SQLite(t *testing.T) { gathered(t, sqliteDSN(t)) }

// gathered lets workers be killed while members of batches end together, add others, and are added by
// a handler.
func gathered(t *testing.T, dsn string) {
	t.Helper()
	const batches, others, splits, pages = 60, 30, 3, 2100
	db := openStore(t, dsn)
	client := durable.NewClient(db)
	fleet := []*worker{startWorker(t, dsn, "w0"), startWorker(t, dsn, "w1"), startWorker(t, dsn, "w2")}
	then := map[durable.RunID]store.BatchID{}
	for n := range batches {
		batch := durable.NewBatch("together")
		at := time.Now().Add(time.Second)
		member := durable.InBatch(batch)
		after := tally.New(tallyArgs{batch.ID()}, durable.DependsOn(batch.OnSuccess()))
		then[after.ID] = batch.ID()
		runs := []durable.NewRun{pair.New(pairArgs{at}, member), pair.New(pairArgs{at}, member), after}
		if n%10 == 0 {
			runs = append(runs, branch.New(branchArgs{others}, member))
		}
		if n%(batches/splits) == 0 {
			runs = append(runs, split.New(splitArgs{pages}))
		}
		_, err := client.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		if n%10 == 9 {
			fleet[n/10%len(fleet)].signal(syscall.SIGKILL)
			fleet[n/10%len(fleet)] = startWorker(t, dsn, fmt.Sprint("w", n))
		}
		<-time.After(40 * time.Millisecond)
	}
	want := int64(3*batches + batches/10*(1+others) + splits*(1+pages))
	until(t, db, 2*time.Minute, "all members, what follows their batches and the handlers of batches succeed", func(c map[durable.State]store.Count) bool {
		return c[durable.Succeeded].N == want && c[durable.Pending].N+c[durable.Running].N+c[durable.Dead].N+c[durable.Cancelled].N == 0
	})
	for after, batch := range then {
		requireEndedBefore(t, db, batch, after)
	}
}

// requireEndedBefore looks whether all members of a batch had ended when a run began.
func requireEndedBefore(t *testing.T, db backend.Store, batch store.BatchID, after durable.RunID) {
	t.Helper()
	run, err := db.Run(t.Context(), after)
	require.NoError(t, err)
	page, err := db.Members(t.Context(), batch, durable.RunID{}, 1000)
	require.NoError(t, err)
	stored, err := db.Batch(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, store.BatchSucceeded, stored.State)
	require.Equal(t, store.BatchCounts{Members: int64(len(page.Members)), Succeeded: int64(len(page.Members))}, stored.Counts)
	for i := range page.Members {
		member, err := db.Run(t.Context(), page.Members[i].ID)
		require.NoError(t, err)
		require.False(t, run.StartedAt.Before(*member.FinishedAt), "%s began before %s of its batch had ended", after, member.ID)
	}
}
