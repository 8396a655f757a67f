package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
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
	migrated := openStore(t, "")
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
	migrated := openStore(t, "")
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
	begins := inTurn(t, begun)
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

// inTurn returns a function that requires what begins next, before a poll.
func inTurn(t *testing.T, begun <-chan string) func(what string) {
	return func(what string) {
		t.Helper()
		select {
		case got := <-begun:
			require.Equal(t, what, got)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits for a poll", what)
		}
	}
}

// TestTheFirstLimitedRunOfALaneIsFoundByItsWakeUp enqueues a run under a limit, of a job of
// which a worker knows only runs without one.
func TestTheFirstLimitedRunOfALaneIsFoundByItsWakeUp(t *testing.T) {
	t.Parallel()
	type args struct{}
	var work = durable.NewJob[args]("work")
	migrated := openStore(t, "")
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
	migrated := openStore(t, "")
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
	begins := inTurn(t, begun)
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
	next := inTurn(t, begun) // one claim may start both, in any order
	if one := <-begun; one == "low" {
		next("high")
	} else {
		next("low")
	}
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
	l.handsOver(func() {
		l.shift(t, 2*time.Minute)
		done, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
		require.NoError(t, err)
		require.Len(t, done.Runs, 1)
		require.Equal(t, store.Dead, done.Runs[0].State)
	})
}

// handsOver requires that a run which waits for a place begins once that is freed. It
// begins in a store of its own, whose worker polls each minute.
func (l *limited) handsOver(free func()) {
	l.t.Helper()
	db, err := postgres.Open(l.t.Context(), l.url, postgres.Config{Schema: l.schema})
	require.NoError(l.t, err)
	l.t.Cleanup(db.Close)
	ctx, stop := context.WithCancel(l.t.Context())
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
	require.Eventually(l.t, func() bool { return l.count("select count(*) from turns where due_at <= now()") == 0 }, 20*time.Second, 50*time.Millisecond, "it has looked")
	require.Empty(l.t, begun)
	free()
	select {
	case got := <-begun:
		require.Equal(l.t, next[0], got)
	case <-time.After(20 * time.Second):
		l.t.Fatal("it waits for a poll")
	}
}

// inTheWay is a run that keeps others from their places.
type inTheWay struct {
	id    store.RunID
	under store.Holder // a run that is executing
}

// ended is a run whose attempt has ended and which has kept the one place there is.
func (l *limited) ended(until store.LimitUntil, outcome store.Outcome) inTheWay {
	l.t.Helper()
	owner := newRun(durable.Unique("owner"))
	owner.MaxAttempts, owner.Limits = 5, []store.LimitUse{{Limit: "doc", Until: until}}
	l.enqueue(owner)
	r, held := l.admit(1)
	require.Len(l.t, held, 1)
	require.Equal(l.t, []store.Verdict{store.Applied}, l.settle(r, held, outcome))
	return inTheWay{id: owner.ID}
}

// dead has kept its place when it died, and failed is pending again and has kept it.
func (l *limited) dead() inTheWay {
	return l.ended(store.UntilFinishedOrRevived, store.Outcome{Kind: store.Death, Error: "x"})
}

func (l *limited) failed() inTheWay {
	return l.ended(store.UntilFinished, store.Outcome{Kind: store.Failure, After: time.Hour, Error: "x"})
}

// heavy wants more places than there are left, at the head of the line. The gate is not
// tried again after admit.BlockedAgain, as it would be.
func (l *limited) heavy() inTheWay {
	l.t.Helper()
	l.exec(`update limits set most = 10;
		create function no_later() returns trigger language plpgsql as 'begin return case when new.due_at <= clock_timestamp() then new end; end';
		create trigger no_later before insert on turns for each row execute function no_later()`)
	l.enqueue(limitedRun(use("doc", "")))
	r, held := l.admit(1)
	require.Len(l.t, held, 1)
	heavy := newRun(durable.Unique("owner"))
	heavy.Limits = []store.LimitUse{{Limit: "doc", Weight: 10}}
	l.enqueue(heavy)
	return inTheWay{heavy.ID, store.Holder{Run: held[0].ID, Claim: r.Claim}}
}

// stranded is executing under a claim whose lease has gone, and must not be repeated.
func (l *limited) stranded() inTheWay {
	l.t.Helper()
	owner := limitedRun(use("doc", ""))
	owner.OnCrash = store.CrashDead
	l.enqueue(owner)
	_, held := l.admit(1)
	require.Len(l.t, held, 1)
	l.exec("delete from leases")
	return inTheWay{id: owner.ID}
}

// TestPlacesAreHandedOverByWakeUps frees places by what is neither a settlement nor a
// reclaim.
func TestPlacesAreHandedOverByWakeUps(t *testing.T) {
	t.Parallel()
	operate := func(action store.RunAction) func(*limited, inTheWay) {
		return func(l *limited, which inTheWay) {
			changed, err := l.Operate(l.t.Context(), store.RunCommand{Action: action, Runs: []store.RunID{which.id}, By: "ann"})
			require.NoError(l.t, err)
			require.Equal(l.t, store.RunChanged, changed[0].Result)
		}
	}
	later := func() store.NewRun { return newRun(durable.Replace("owner"), durable.After(2*time.Hour)) } // which wakes no worker
	replaces := func(l *limited, which inTheWay, receipts []store.Receipt, err error) {
		l.t.Helper()
		require.NoError(l.t, err)
		require.Equal(l.t, []store.Receipt{{ID: which.id, Existing: true}}, receipts)
	}
	replace := func(l *limited, which inTheWay) {
		receipts, err := l.Enqueue(l.t.Context(), later())
		replaces(l, which, receipts, err)
	}
	replaceUnder := func(l *limited, which inTheWay) {
		receipts, err := l.EnqueueUnder(l.t.Context(), which.under, later())
		replaces(l, which, receipts, err)
	}
	replaceIn := func(name string) func(*limited, inTheWay) {
		return func(l *limited, which inTheWay) {
			u := bindings[slices.IndexFunc(bindings, func(b binding) bool { return b.name == name })].open(l.t, l.opened)
			receipts, err := u.Enqueue(l.t.Context(), later())
			replaces(l, which, receipts, err)
			require.NoError(l.t, u.Commit())
		}
	}
	sweep := func(l *limited, _ inTheWay) {
		l.exec("update runs set finished_at = finished_at - interval '2 hours' where state = 4")
		require.Eventually(l.t, func() bool {
			l.exec("update sweep set began_at = began_at - interval '2 hours'")
			swept, err := l.Sweep(l.t.Context(), store.SweepRequest{By: uuid.New(), RetentionDead: time.Hour, Limit: 100})
			require.NoError(l.t, err)
			require.Zero(l.t, swept.Repaired+swept.Mended, "workers look for those")
			return swept.Deleted+len(swept.Returned) == 1
		}, 20*time.Second, 50*time.Millisecond)
	}
	for _, c := range []struct {
		name string
		held func(*limited) inTheWay
		free func(*limited, inTheWay)
	}{
		{"a dead run is deleted", (*limited).dead, operate(store.DeleteRuns)},
		{"a failed run is cancelled", (*limited).failed, operate(store.CancelRuns)},
		{"a failed run is deleted", (*limited).failed, operate(store.DeleteRuns)},
		{"a heavy run is cancelled", (*limited).heavy, operate(store.CancelRuns)},
		{"a heavy run is deleted", (*limited).heavy, operate(store.DeleteRuns)},
		{"a dead run is swept", (*limited).dead, sweep},
		{"a stranded run is swept", (*limited).stranded, sweep},
		{"a failed run is replaced", (*limited).failed, replace},
		{"a heavy run is replaced", (*limited).heavy, replace},
		{"a heavy run is replaced under a run", (*limited).heavy, replaceUnder},
		{"a heavy run is replaced in a transaction of pgx", (*limited).heavy, replaceIn("pgx-simple")},
		{"a failed run is replaced in a transaction of lib/pq", (*limited).failed, replaceIn("lib-pq")},
		{"a heavy run is replaced in a transaction of stdlib", (*limited).heavy, replaceIn("stdlib")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := openLimited(t, semaphore("doc", 1))
			which := c.held(l)
			l.handsOver(func() { c.free(l, which) })
		})
	}
}

// TestWhatFreesNothingWakesNoWorker deletes runs that have ended and given back their
// places.
func TestWhatFreesNothingWakesNoWorker(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 10))
	ids := l.enqueue(limitedRun(use("doc", "")), limitedRun(use("doc", "")))
	r, held := l.admit(10)
	require.Len(t, held, 2)
	l.settle(r, held, store.Outcome{Kind: store.Success})
	<-time.After(500 * time.Millisecond) // what these have announced is sent
	listening := l.conn()
	_, err := listening.Exec(t.Context(), "listen "+l.schema+"_wake")
	require.NoError(t, err)
	_, err = l.Operate(t.Context(), store.RunCommand{Action: store.DeleteRuns, Runs: ids, By: "ann"})
	require.NoError(t, err)
	require.Zero(t, l.count("select count(*) from runs"))
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	_, err = listening.WaitForNotification(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestManyRunsOfAKeyReachAllWorkers enqueues more runs of one key than one worker has room
// for. Handlers end when all have begun, so a worker that rests although some are left keeps
// them all. The polls are a minute apart.
func TestManyRunsOfAKeyReachAllWorkers(t *testing.T) {
	t.Parallel()
	type args struct{}
	var many = durable.NewLimit("many", durable.Semaphore(10_000))
	var work = durable.NewJob[args]("work", durable.Limited(many))
	for _, c := range []struct{ workers, room, runs, calls int }{{3, 100, 300, 1}, {3, 100, 300, 300}, {3, 1, 3, 3}, {4, 10, 40, 2}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			migrated := openStore(t, "")
			ctx, stop := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			defer workers.Wait()
			defer stop()
			var begun atomic.Int64
			all := make(chan struct{})
			for i := range c.workers {
				db, err := postgres.Open(ctx, migrated.url, postgres.Config{Schema: migrated.schema})
				require.NoError(t, err)
				t.Cleanup(db.Close)
				w := durable.NewWorker(db, durable.WorkerConfig{Name: fmt.Sprint("w", i), PollInterval: time.Minute, MaxConcurrentRuns: c.room, Process: new(durable.Process)})
				durable.Register(w, work, func(ctx context.Context, _ *durable.Run[args]) error {
					if begun.Add(1) == int64(c.runs) {
						close(all)
					}
					select {
					case <-all:
					case <-ctx.Done():
					}
					return nil
				})
				workers.Go(func() { _ = w.Run(ctx) })
			}
			require.Eventually(t, func() bool {
				_, err := migrated.Gate(ctx, "many", "")
				return err == nil
			}, time.Minute, 10*time.Millisecond)
			<-time.After(500 * time.Millisecond) // all listen
			for range c.calls {
				some := make([]durable.NewRun, c.runs/c.calls)
				for i := range some {
					some[i] = work.New(args{})
				}
				_, err := durable.NewClient(migrated).Enqueue(ctx, some...)
				require.NoError(t, err)
			}
			select {
			case <-all:
			case <-time.After(20 * time.Second):
				t.Fatalf("%d of %d have begun, the others wait for a poll", begun.Load(), c.runs)
			}
		})
	}
}

// TestWorkersOfDifferentJobsShareAMutex has each of two workers, of which none serves the
// other's job, wait for what the other one frees. The polls are a minute apart.
func TestWorkersOfDifferentJobsShareAMutex(t *testing.T) {
	t.Parallel()
	const runs = 30 // of each
	type args struct{}
	var doc = durable.NewLimit("doc", durable.Mutex())
	migrated := openStore(t, "")
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	var executing, ended atomic.Int64
	var jobs []durable.Job[args]
	for _, name := range []string{"x", "y"} {
		job := durable.NewJob[args](name, durable.OnQueue(name), durable.Limited(doc))
		jobs = append(jobs, job)
		db, err := postgres.Open(ctx, migrated.url, postgres.Config{Schema: migrated.schema})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		w := durable.NewWorker(db, durable.WorkerConfig{Name: name, Queues: []durable.Queue{{Name: name}}, PollInterval: time.Minute, Process: new(durable.Process)})
		durable.Register(w, job, func(context.Context, *durable.Run[args]) error {
			if executing.Add(1) > 1 {
				t.Error("two at a time")
			}
			<-time.After(3 * time.Millisecond)
			executing.Add(-1)
			ended.Add(1)
			return nil
		})
		workers.Go(func() { _ = w.Run(ctx) })
	}
	require.Eventually(t, func() bool {
		_, err := migrated.Gate(ctx, "doc", "")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	client := durable.NewClient(migrated)
	for range runs {
		for _, job := range jobs {
			_, err := client.Enqueue(ctx, job.New(args{}))
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool { return ended.Load() == 2*runs }, 40*time.Second, 5*time.Millisecond, "some wait for a poll")
}
