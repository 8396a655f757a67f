package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// TestKeyRaces has many goroutines enqueue with the same keys through stores
// that share what they store, such as those of several processes on one
// database. TestStore calls it with one store; a store's author calls it with
// several. The stores must be migrated and empty.
func TestKeyRaces(t *testing.T, stores ...store.Store) {
	t.Helper()
	races := []struct {
		sentence string
		race     func(*keyRace)
	}{
		{"of a unique key at most one run has not ended", (*keyRace).unique},
		{"debounced there is one pending run, and the last one's args", (*keyRace).debounce},
		{"no replacement is lost, whatever is claimed meanwhile", (*keyRace).replace},
		{"calls with many keys in any order do not stand in each other's way", (*keyRace).orders},
		{"of calls with the same new keys in any order, each key has one winner", (*keyRace).newKeys},
	}
	for i, r := range races {
		t.Run(r.sentence, func(t *testing.T) {
			f := &fixture{t: t, ctx: t.Context(), store: stores[0]}
			r.race(&keyRace{fixture: f, stores: stores, job: "race" + strconv.Itoa(i), executed: map[string]int{}})
		})
	}
}

// keyRace is one job whose runs are enqueued, claimed and watched concurrently.
type keyRace struct {
	*fixture
	stores []store.Store
	job    string
	clock  atomic.Int64 // orders what happened in this process

	mu       sync.Mutex
	executed map[string]int // args
	at       atomic.Int64   // runs that are being executed
	most     atomic.Int64   // concurrently
	working  atomic.Bool
}

const contenders = 64

func (r *keyRace) run(key store.Key) store.NewRun {
	run := newRun(with(key))
	run.Job = r.job
	return run
}

func (r *keyRace) through(i int) store.Store { return r.stores[i%len(r.stores)] }

// work claims and settles what is due until the race is over and nothing waits.
func (r *keyRace) work(store store.Store) func(context.Context) error {
	worker := newWorker("w")
	return func(ctx context.Context) error {
		for {
			last := !r.working.Load()
			n, err := r.step(ctx, store, worker)
			if err != nil || n == 0 && last {
				return err
			}
		}
	}
}

// step claims one run and settles it.
func (r *keyRace) step(ctx context.Context, db store.Store, worker store.WorkerID) (int, error) {
	heads, err := db.Heads(ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{r.job}})
	if err != nil {
		return 0, err
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: time.Minute, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	claimed, err := db.Claim(ctx, request)
	if err != nil || len(claimed) == 0 {
		return 0, err
	}
	now := r.at.Add(1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	r.mu.Lock()
	r.executed[string(claimed[0].Args)]++
	r.mu.Unlock()
	r.at.Add(-1)
	verdicts, err := settled(ctx, db, one(request.Claim, worker, claimed[0].ID, success()))
	if err == nil && verdicts[0] != store.Applied {
		err = fmt.Errorf("verdict %d", verdicts[0])
	}
	return 1, err
}

// watch counts the job's runs in some states, again and again.
func (r *keyRace) watch(db store.Store, most int, states ...store.State) func(context.Context) error {
	return func(ctx context.Context) error {
		for r.working.Load() {
			page, err := db.Runs(ctx, store.Filter{Jobs: []string{r.job}, States: states})
			if err != nil {
				return err
			}
			if len(page.Runs) > most {
				return fmt.Errorf("%d runs are %v: %v and %v", len(page.Runs), states, page.Runs[0].ID, page.Runs[1].ID)
			}
		}
		return nil
	}
}

// contend runs the enqueuing functions concurrently with others, and notifies those
// when they are over.
func (r *keyRace) contend(enqueue func(ctx context.Context, i int) error, beside ...func(context.Context) error) {
	r.t.Helper()
	r.working.Store(true)
	var left atomic.Int64
	left.Store(contenders)
	r.together(append(beside, repeat(contenders, func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			defer func() {
				if left.Add(-1) == 0 {
					r.working.Store(false)
				}
			}()
			return enqueue(ctx, i)
		}
	})...)...)
}

func (r *keyRace) unique() {
	const calls = 10
	var mu sync.Mutex
	stored, named := map[store.RunID]bool{}, map[store.RunID]bool{}
	r.contend(func(ctx context.Context, i int) error {
		for n, again := 0, true; n < calls || again && n < 1000*calls; n++ { // until a second run has been stored
			run := r.run(unique("k"))
			receipts, err := r.through(i).Enqueue(ctx, run)
			if err != nil {
				return err
			}
			mu.Lock()
			if receipts[0].Existing {
				named[receipts[0].ID] = true
			} else {
				stored[receipts[0].ID] = receipts[0].ID == run.ID
			}
			again = len(stored) < 2
			mu.Unlock()
		}
		return nil
	}, r.work(r.through(0)), r.work(r.through(1)), r.work(r.through(2)), r.watch(r.through(3), 1, store.Pending, store.Running))
	for id := range named {
		if !stored[id] {
			r.t.Errorf("run %s was named and never stored", id)
		}
	}
	if most := r.most.Load(); most != 1 {
		r.t.Errorf("%d runs of the key were executed concurrently", most)
	}
	var executed int
	for _, n := range r.executed {
		executed += n
	}
	if executed != len(stored) || executed < 2 {
		r.t.Errorf("%d runs were executed, %d stored", executed, len(stored))
	}
	r.t.Logf("%d runs of one key, %d calls", executed, contenders*calls)
}

func (r *keyRace) debounce() {
	type call struct{ began, ended int64 }
	calls := make([]call, contenders*10)
	var first atomic.Pointer[store.RunID]
	var fresh atomic.Int64
	r.contend(func(ctx context.Context, i int) error {
		for k := range 10 {
			n := i*10 + k
			run := r.run(debounced("k", time.Hour, 24*time.Hour))
			run.Args, run.Priority = []byte(strconv.Itoa(n)), n%5
			calls[n].began = r.clock.Add(1)
			receipts, err := r.through(i).Enqueue(ctx, run)
			calls[n].ended = r.clock.Add(1)
			if err != nil {
				return err
			}
			if !receipts[0].Existing {
				fresh.Add(1)
			}
			if id := receipts[0].ID; !first.CompareAndSwap(nil, &id) && *first.Load() != id {
				return fmt.Errorf("run %s beside run %s", id, *first.Load())
			}
		}
		return nil
	}, r.watch(r.through(0), 1, store.Pending))
	if r.t.Failed() {
		return
	}
	record := r.record(*first.Load())
	n, err := strconv.Atoi(string(record.Args))
	if err != nil || fresh.Load() != 1 {
		r.t.Fatalf("args %s, %d stored", record.Args, fresh.Load())
	}
	for _, other := range calls {
		if other.began > calls[n].ended {
			r.t.Errorf("the args of a call stand although another began after it had ended")
		}
	}
}

func (r *keyRace) replace() {
	const rounds = 8
	var left sync.WaitGroup
	left.Add(rounds)
	r.working.Store(true)
	enqueue := func(ctx context.Context, i int, args string) error {
		run := r.run(replacing("k"))
		run.Args, run.Priority = []byte(args), i%3
		_, err := r.through(i).Enqueue(ctx, run)
		return err
	}
	functions := []func(context.Context) error{
		r.work(r.through(0)), r.work(r.through(1)), r.work(r.through(2)), r.watch(r.through(3), 1, store.Pending),
	}
	r.together(append(functions, func(ctx context.Context) error {
		defer r.working.Store(false)
		for round := range rounds {
			errs := make(chan error, contenders)
			for i := range contenders {
				go func() { errs <- enqueue(ctx, i, strconv.Itoa(round*1000+i)) }()
			}
			for range contenders {
				if err := <-errs; err != nil {
					return err
				}
			}
			last := fmt.Sprintf(`"last %d"`, round)
			if err := enqueue(ctx, round, last); err != nil {
				return err
			}
			if err := r.drained(ctx); err != nil {
				return err
			}
			r.mu.Lock()
			n := r.executed[last]
			r.mu.Unlock()
			if n != 1 {
				return fmt.Errorf("what was enqueued last in round %d was executed %d times", round, n)
			}
		}
		return nil
	})...)
	r.t.Logf("%d of %d were executed, the others replaced", len(r.executed), rounds*(contenders+1))
}

// drained waits until no run of the job is pending or running.
func (r *keyRace) drained(ctx context.Context) error {
	for {
		page, err := r.store.Runs(ctx, store.Filter{Jobs: []string{r.job}, States: []store.State{store.Pending, store.Running}})
		if err != nil || len(page.Runs) == 0 {
			return err
		}
	}
}

func (r *keyRace) orders() {
	const keys = 10
	r.contend(func(ctx context.Context, i int) error {
		for k := range 3 {
			runs := make([]store.NewRun, keys)
			for n := range runs {
				place := (n*(1+i%2*(keys-2)) + i + k) % keys // up or down, from anywhere
				runs[n] = r.run(replacing(strconv.Itoa(place)))
			}
			if _, err := r.through(i).Enqueue(ctx, runs...); err != nil {
				return err
			}
		}
		return nil
	}, r.work(r.through(0)), r.work(r.through(1)), r.watch(r.through(2), keys, store.Pending))
}

func (r *keyRace) newKeys() {
	const rounds, keys, callers = 20, 100, 8
	var stored atomic.Int64
	for round := range rounds {
		r.together(repeat(callers, func(i int) func(context.Context) error {
			runs := make([]store.NewRun, keys)
			for n, place := range rand.Perm(keys) { //nolint:gosec // any order will do
				runs[n] = r.run(store.Key{Text: fmt.Sprint(round, "-", place), Policy: store.KeyUnique})
			}
			return func(ctx context.Context) error {
				receipts, err := r.through(i).Enqueue(ctx, runs...)
				for _, receipt := range receipts {
					if !receipt.Existing {
						stored.Add(1)
					}
				}
				return err
			}
		})...)
	}
	if n := stored.Load(); n != rounds*keys {
		r.t.Fatalf("%d of %d keys were stored as new", n, rounds*keys)
	}
	counts, err := r.store.Counts(r.ctx)
	if n := counts[store.Pending].N; err != nil || n < rounds*keys {
		r.t.Fatalf("%d runs wait of %d: %v", n, rounds*keys, err)
	}
}
