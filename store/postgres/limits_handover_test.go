package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// TestAPlaceIsHandedOverByWakeUps has two workers in stores of their own share a mutex.
// They poll each minute, so the next run begins by the wake-up of the one that ended, or
// not within the test. How long that takes is logged.
func TestAPlaceIsHandedOverByWakeUps(t *testing.T) {
	t.Parallel()
	const runs = 60
	type args struct{}
	var doc = durable.NewLimit("doc", durable.Mutex())
	var work = durable.NewJob[args]("work", durable.Limited(doc))
	migrated := openFresh(t, pgtest.Server(t))
	var mu sync.Mutex
	var begun, ended []time.Time
	by := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		db, err := postgres.Open(ctx, migrated.url, postgres.Config{Schema: migrated.schema})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		w := durable.NewWorker(db, durable.WorkerConfig{Name: name, PollInterval: time.Minute, Process: new(durable.Process)})
		durable.Register(w, work, func(context.Context, *durable.Run[args]) error {
			mu.Lock()
			begun = append(begun, time.Now())
			by[name]++
			mu.Unlock()
			<-time.After(5 * time.Millisecond)
			mu.Lock()
			ended = append(ended, time.Now())
			mu.Unlock()
			return nil
		})
		workers.Go(func() { _ = w.Run(ctx) })
	}
	require.Eventually(t, func() bool {
		_, err := migrated.Gate(ctx, "doc", "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	var some []durable.NewRun
	for range runs {
		some = append(some, work.New(args{}))
	}
	_, err := durable.NewClient(migrated).Enqueue(ctx, some...)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ended) == runs
	}, 40*time.Second, 5*time.Millisecond, "the runs do not wait for a poll")
	stop()
	workers.Wait()
	var gaps []time.Duration
	for i := range runs - 1 {
		require.False(t, begun[i+1].Before(ended[i]), "two at a time")
		gaps = append(gaps, begun[i+1].Sub(ended[i]))
	}
	slices.Sort(gaps)
	t.Logf("handed over in %v (median), %v (p95), %v at most; %v", gaps[len(gaps)/2], gaps[len(gaps)*95/100], gaps[len(gaps)-1], by)
}

// TestARateThatComesUpWithAPlaceIsWaitedFor frees two places for runs that also need a
// start of a bucket, which has one. Who admits by the wake-up of freed places has to find
// out when the next start is free: the first run holds its place for long, and with polls
// each minute nothing else finds it.
func TestARateThatComesUpWithAPlaceIsWaitedFor(t *testing.T) {
	t.Parallel()
	type args struct{}
	var places, starts = durable.NewLimit("places", durable.Semaphore(2)), durable.NewLimit("starts", durable.TokenBucket(4, time.Second, 1))
	var hold = durable.NewJob[args]("hold", durable.Limited(places))
	var work = durable.NewJob[args]("work", durable.Limited(places), durable.Limited(starts))
	migrated := openFresh(t, pgtest.Server(t))
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	release, done, begun := make(chan struct{}), make(chan struct{}), make(chan string, 10)
	defer close(done)
	w := durable.NewWorker(migrated.Store, durable.WorkerConfig{PollInterval: time.Minute, Process: new(durable.Process)})
	durable.Register(w, hold, func(context.Context, *durable.Run[args]) error {
		begun <- "hold"
		<-release
		return nil
	})
	durable.Register(w, work, func(context.Context, *durable.Run[args]) error {
		begun <- "work"
		<-done
		return nil
	})
	workers.Go(func() { _ = w.Run(ctx) })
	begins := func(what string) {
		t.Helper()
		select {
		case got := <-begun:
			require.Equal(t, what, got)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits for a poll", what)
		}
	}
	require.Eventually(t, func() bool {
		_, err := migrated.Gate(ctx, "starts", "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	client := durable.NewClient(migrated)
	_, err := client.Enqueue(ctx, hold.New(args{}), hold.New(args{}))
	require.NoError(t, err)
	begins("hold")
	begins("hold")
	_, err = client.Enqueue(ctx, work.New(args{}), work.New(args{}))
	require.NoError(t, err)
	<-time.After(500 * time.Millisecond) // the wake-ups of the enqueue are answered
	close(release)
	begins("work")
	begins("work")
}

// TestTheFirstLimitedRunOfALaneIsFoundByItsWakeUp enqueues a run under a limit, of a job of
// which a worker knows only runs without one.
func TestTheFirstLimitedRunOfALaneIsFoundByItsWakeUp(t *testing.T) {
	t.Parallel()
	type args struct{}
	var work = durable.NewJob[args]("work")
	migrated := openFresh(t, pgtest.Server(t))
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	begun := make(chan struct{}, 10)
	w := durable.NewWorker(migrated.Store, durable.WorkerConfig{PollInterval: time.Minute, Process: new(durable.Process)})
	durable.Register(w, work, func(context.Context, *durable.Run[args]) error {
		begun <- struct{}{}
		return nil
	})
	workers.Go(func() { _ = w.Run(ctx) })
	require.NoError(t, migrated.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, By: "ann",
		Limit: store.Limit{Name: "doc", Kind: store.LimitSemaphore, Max: 1}}))
	client := durable.NewClient(migrated)
	begins := func(options ...durable.Option) {
		t.Helper()
		_, err := client.Enqueue(ctx, work.New(args{}, options...))
		require.NoError(t, err)
		select {
		case <-begun:
		case <-time.After(20 * time.Second):
			t.Fatal("it waits for a poll")
		}
	}
	begins()
	begins()
	begins(durable.LimitedByUse(store.LimitUse{Limit: "doc"}))
}

// TestWhatIsFreedReachesALowerPriority frees two places, for one run of a high priority
// and one of a low one. The wake-up names the limit's line, which has the highest priority
// of its lanes: what is left for the others must not wait for a poll.
func TestWhatIsFreedReachesALowerPriority(t *testing.T) {
	t.Parallel()
	type args struct{}
	var places = durable.NewLimit("places", durable.Semaphore(2))
	var hold = durable.NewJob[args]("hold", durable.Limited(places, durable.Weight(2)))
	var high = durable.NewJob[args]("high", durable.Limited(places), durable.Priority(4))
	var low = durable.NewJob[args]("low", durable.Limited(places))
	migrated := openFresh(t, pgtest.Server(t))
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	release, done, begun := make(chan struct{}), make(chan struct{}), make(chan string, 10)
	defer close(done)
	w := durable.NewWorker(migrated.Store, durable.WorkerConfig{PollInterval: time.Minute, Process: new(durable.Process)})
	register := func(name string, job durable.Job[args], until chan struct{}) {
		durable.Register(w, job, func(context.Context, *durable.Run[args]) error {
			begun <- name
			<-until
			return nil
		})
	}
	register("hold", hold, release)
	register("high", high, done)
	register("low", low, done)
	workers.Go(func() { _ = w.Run(ctx) })
	begins := func(what string) {
		t.Helper()
		select {
		case got := <-begun:
			require.Equal(t, what, got)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits for a poll", what)
		}
	}
	require.Eventually(t, func() bool {
		_, err := migrated.Gate(ctx, "places", "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	client := durable.NewClient(migrated)
	_, err := client.Enqueue(ctx, hold.New(args{}))
	require.NoError(t, err)
	begins("hold")
	_, err = client.Enqueue(ctx, high.New(args{}), low.New(args{}))
	require.NoError(t, err)
	<-time.After(500 * time.Millisecond) // the wake-ups of the enqueue are answered
	close(release)
	begins("high")
	begins("low")
}

// TestThePlaceOfADeadRunIsHandedOverByAWakeUp reclaims the run that has a mutex, which its
// crash ends. The worker that can execute the next one is not the one that reclaims.
func TestThePlaceOfADeadRunIsHandedOverByAWakeUp(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	owner := limitedRun(use("doc", ""))
	owner.OnCrash = store.CrashDead
	l.enqueue(owner)
	_, held := l.admit(1)
	require.Len(t, held, 1)
	db, err := postgres.Open(t.Context(), l.url, postgres.Config{Schema: l.schema})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	begun := make(chan store.RunID, 10)
	w := durable.NewWorker(db, durable.WorkerConfig{
		PollInterval: time.Minute, Terms: lease.Terms{Duration: 10 * time.Minute}, Process: new(durable.Process)}) // it reclaims as seldom as it polls
	durable.Register(w, job, func(_ context.Context, run *durable.Run[map[string]string]) error {
		begun <- run.ID
		return nil
	})
	workers.Go(func() { _ = w.Run(ctx) })
	next := l.enqueue(limitedRun(use("doc", "")))
	require.Eventually(t, func() bool { return l.count("select count(*) from turns") == 0 }, 20*time.Second, 50*time.Millisecond, "it has looked")
	l.shift(t, 2*time.Minute)
	done, err := l.Reclaim(ctx, store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
	require.NoError(t, err)
	require.Len(t, done.Runs, 1)
	require.Equal(t, store.Dead, done.Runs[0].State)
	select {
	case got := <-begun:
		require.Equal(t, next[0], got)
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for a poll")
	}
}
