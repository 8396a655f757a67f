package postgres_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// asking is a store that counts what its worker asks.
type asking struct {
	*postgres.Store

	claims, heads atomic.Int64
}

func (a *asking) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	a.claims.Add(1)
	return a.Store.Claim(ctx, request)
}

func (a *asking) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	a.heads.Add(1)
	return a.Store.Heads(ctx, serves)
}

// member starts a worker with connections of its own that polls each hour.
func member(t *testing.T, place opened, name string, executed chan<- durable.RunID) (a *asking, stop func()) {
	t.Helper()
	return polling(t, place, time.Hour, executed, name)
}

// polling is member with a poll interval, for several jobs.
func polling(t *testing.T, place opened, every time.Duration, executed chan<- durable.RunID, names ...string) (a *asking, stop func()) {
	t.Helper()
	own, err := postgres.Open(t.Context(), place.url, postgres.Config{Schema: place.schema, MaxConns: 2})
	require.NoError(t, err)
	a = &asking{Store: own}
	w := durable.NewWorker(a, durable.WorkerConfig{PollInterval: every, Process: new(durable.Process)})
	for _, name := range names {
		durable.Register(w, durable.NewJob[struct{}](name), func(_ context.Context, run *durable.Run[struct{}]) error {
			executed <- run.ID
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); running.Wait(); own.Close() }) }
	t.Cleanup(stop)
	return a, stop
}

// listeners are the connections of workers that listen: each holds a lock that says so.
const listeners = "FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

// listening waits until so many workers listen.
func listening(t *testing.T, place opened, n int) {
	t.Helper()
	conn := connect(t, place.url)
	require.Eventually(t, func() bool {
		var have int
		err := conn.QueryRow(t.Context(), "SELECT count(*) "+listeners).Scan(&have)
		return err == nil && have == n
	}, time.Minute, 10*time.Millisecond)
}

// Workers that serve the same take turns, so that a run costs few claims, and one
// that serves something else is not woken at all. No one polls here: what no wake-up
// found would not be executed.
func TestFleet_ARunWakesFew(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers = 8
	executed := make(chan durable.RunID, 1000)
	fleet, stops := make([]*asking, workers), make([]func(), workers)
	for i := range fleet {
		fleet[i], stops[i] = member(t, place, "mail", executed)
	}
	stranger, _ := member(t, place, "report", make(chan durable.RunID))
	listening(t, place, workers+1)
	mail := durable.NewJob[struct{}]("mail")
	one := func() {
		t.Helper()
		receipts, err := place.Enqueue(t.Context(), mail.New(struct{}{}))
		require.NoError(t, err)
		select {
		case id := <-executed:
			require.Equal(t, receipts[0].ID, id)
		case <-time.After(30 * time.Second):
			t.Fatal("a run was not found")
		}
	}
	claims := func() (n int64) {
		for _, a := range fleet {
			n += a.claims.Load()
		}
		return n
	}
	for range 30 { // they get to know each other
		one()
	}
	const runs = 100
	before, foreign, looked := claims(), stranger.claims.Load(), stranger.heads.Load()
	for range runs {
		one()
	}
	t.Logf("%d claims for %d runs", claims()-before, runs)
	require.LessOrEqual(t, claims()-before, int64(2*runs), "claims of %d workers for %d runs", workers, runs)
	require.Equal(t, foreign, stranger.claims.Load(), "who serves none of them claims nothing")
	require.Equal(t, looked, stranger.heads.Load(), "and asks for nothing")
	for _, stop := range stops[:workers-1] {
		stop()
	}
	for range 20 {
		one() // the last one takes over for all that have left
	}
}

// Runs of several jobs that are enqueued in turn, one soon after the other, wake as few as
// those of one job: the same worker looks in the lanes of all.
func TestFleet_JobsInTurnWakeFew(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 8, 200
	names := []string{"mail", "report", "invoice"}
	executed := make(chan durable.RunID, 2*runs)
	fleet := make([]*asking, workers)
	for i := range fleet {
		fleet[i], _ = polling(t, place, time.Hour, executed, names...)
	}
	listening(t, place, workers)
	steadily := func(n int) {
		t.Helper()
		pace := time.NewTicker(8 * time.Millisecond)
		defer pace.Stop()
		for i := range n {
			_, err := place.Enqueue(t.Context(), durable.NewJob[struct{}](names[i%len(names)]).New(struct{}{}))
			require.NoError(t, err)
			<-pace.C
		}
		for range n {
			select {
			case <-executed:
			case <-time.After(30 * time.Second):
				t.Fatal("a run was not found")
			}
		}
	}
	asked := func() (claims, heads int64) {
		for _, a := range fleet {
			claims, heads = claims+a.claims.Load(), heads+a.heads.Load()
		}
		return claims, heads
	}
	steadily(100) // they get to know each other
	claims, heads := asked()
	steadily(runs)
	after, read := asked()
	t.Logf("%d claims and %d readings for %d runs", after-claims, read-heads, runs)
	require.LessOrEqual(t, after-claims, int64(4*runs), "claims of %d workers for %d runs", workers, runs)
}

// Runs that are due later start soon after they are, and few look for them; so do runs that
// fail and are retried. Their own worker may stop meanwhile.
func TestFleet_RunsDueLaterWakeFew(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 8, 150
	executed := make(chan time.Time, 2*runs)
	fleet, stops := make([]*asking, workers), make([]func(), workers)
	for i := range fleet {
		fleet[i], stops[i] = retrying(t, place, executed)
	}
	listening(t, place, workers)
	delayed, failing := durable.NewJob[instant]("delayed"), durable.NewJob[instant]("failing", durable.Retry(durable.Fixed(time.Second)))
	for _, one := range []struct {
		name string
		job  durable.Job[instant]
		with []durable.Option
		late time.Duration // of the instant in args, when it is due
		stop int           // workers that stop before the runs are due
		most int64         // claims and readings
	}{
		{"delayed", delayed, []durable.Option{durable.After(time.Second)}, time.Second, 0, 5 * runs},
		{"retried", failing, nil, time.Second, 0, 7 * runs},
		{"left by workers that stop", failing, nil, time.Second, workers / 2, 20 * runs},
	} {
		var asked int64
		for _, a := range fleet {
			asked -= a.claims.Load() + a.heads.Load()
		}
		pace := time.NewTicker(5 * time.Millisecond)
		for range runs {
			_, err := place.Enqueue(t.Context(), one.job.New(instant{time.Now().Add(one.late)}, one.with...))
			require.NoError(t, err)
			<-pace.C
		}
		pace.Stop()
		for i := range one.stop {
			stops[i]()
		}
		late := make([]time.Duration, runs)
		for i := range late {
			select {
			case due := <-executed:
				late[i] = time.Since(due)
			case <-time.After(30 * time.Second):
				t.Fatal("a run was not found")
			}
		}
		slices.Sort(late)
		for _, a := range fleet {
			asked += a.claims.Load() + a.heads.Load()
		}
		t.Logf("%s: %d claims and readings for %d runs, late by %v at the median, %v at most", one.name, asked, runs, late[runs/2], late[runs-1])
		require.LessOrEqual(t, asked, one.most, one.name)
	}
}

// instant is when a run is to start.
type instant struct {
	Due time.Time `json:"due"`
}

// retrying starts a worker that polls each hour, with one job whose runs fail once.
func retrying(t *testing.T, place opened, executed chan<- time.Time) (a *asking, stop func()) {
	t.Helper()
	own, err := postgres.Open(t.Context(), place.url, postgres.Config{Schema: place.schema, MaxConns: 2})
	require.NoError(t, err)
	a = &asking{Store: own}
	w := durable.NewWorker(a, durable.WorkerConfig{PollInterval: time.Hour, Process: new(durable.Process)})
	durable.Register(w, durable.NewJob[instant]("delayed"), func(_ context.Context, run *durable.Run[instant]) error {
		executed <- run.Args.Due
		return nil
	})
	durable.Register(w, durable.NewJob[instant]("failing", durable.Retry(durable.Fixed(time.Second))), func(_ context.Context, run *durable.Run[instant]) error {
		if run.Attempt == 1 {
			return context.DeadlineExceeded
		}
		executed <- run.Args.Due
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); running.Wait(); own.Close() }) }
	t.Cleanup(stop)
	return a, stop
}

// A burst wakes all of them.
func TestFleet_ABurstReachesAll(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 4, 2000
	executed := make(chan durable.RunID, runs)
	fleet := make([]*asking, workers)
	for i := range fleet {
		fleet[i], _ = member(t, place, "mail", executed)
	}
	listening(t, place, workers)
	mail := durable.NewJob[struct{}]("mail")
	all := make([]store.NewRun, runs)
	for i := range all {
		all[i] = mail.New(struct{}{})
	}
	before := make([]int64, workers)
	for i, a := range fleet {
		before[i] = a.claims.Load()
	}
	_, err := place.Enqueue(t.Context(), all...)
	require.NoError(t, err)
	for range runs {
		select {
		case <-executed:
		case <-time.After(time.Minute):
			t.Fatal("a run was not found")
		}
	}
	for i, a := range fleet {
		require.Greater(t, a.claims.Load(), before[i], "worker %d", i)
	}
}

// Where wake-ups are lost, because the server ends the listening connections again and
// again or because who enqueues does not notify, a run waits no longer than a poll and
// its jitter. The margin is the machine's; without polls a run would wait for an hour.
func TestFleet_LostWakeUpsCostNoMoreThanAPoll(t *testing.T) {
	t.Parallel()
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs, poll, margin = 4, 60, time.Second, 4 * time.Second
	executed := make(chan durable.RunID, runs)
	for range workers {
		polling(t, place, poll, executed, "mail")
	}
	listening(t, place, workers)
	mute, err := postgres.Open(t.Context(), place.url, postgres.Config{Schema: place.schema, MaxConns: 2, NoNotify: true})
	require.NoError(t, err)
	t.Cleanup(mute.Close)
	ctx, calm := context.WithCancel(t.Context())
	var killing sync.WaitGroup
	conn := connect(t, place.url)
	killed := 0
	killing.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			var n int
			if err := conn.QueryRow(context.WithoutCancel(ctx), "SELECT count(pg_terminate_backend(pid)) "+listeners).Scan(&n); err != nil {
				t.Errorf("kill: %v", err)
			}
			killed += n
		}
	})
	mail, waits := durable.NewJob[struct{}]("mail"), make([]time.Duration, 0, runs)
	for i := range runs {
		var through durable.Store = place
		if i%2 == 0 {
			through = mute
		}
		began := time.Now()
		receipt, err := mail.Enqueue(t.Context(), through, struct{}{})
		require.NoError(t, err)
		select {
		case id := <-executed:
			require.Equal(t, receipt.ID, id)
		case <-time.After(time.Minute):
			t.Fatal("a run was not found")
		}
		waits = append(waits, time.Since(began))
	}
	calm()
	killing.Wait()
	slices.Sort(waits)
	t.Logf("%d listeners killed; runs waited %v at the median, %v at most", killed, waits[runs/2], waits[runs-1])
	require.Positive(t, killed)
	require.Less(t, waits[runs-1], poll*6/5+margin)
}
