package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// limited is a drain under limits, by workers of this process. Its runs are compared with
// those of the same drain without limits.
type limited struct {
	n           int
	limit       store.Limit                  // the zero value: none
	use         func(i int) *store.LimitUse  // of a run; nil: none
	beside      int                          // limited runs that wait, or start now and then, beside unlimited ones
	besideUse   func(i int) *store.LimitUse  // of them
	lasts       time.Duration                // each handler
	workers     int                          // zero: one
	concurrency int                          // of each; zero: 200
	tell        func(*limitedResult, sample) // adds figures
	alone       bool                         // there is nothing to compare with
}

// limitedResult is what one drain has shown.
type limitedResult struct {
	took   time.Duration
	claims int64 // that got nothing

	mu     sync.Mutex
	starts []time.Time
	ends   []time.Time
}

func (r *limitedResult) note(to *[]time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, now)
}

// limitRows are drains under limits.
func limitRows(n int, quick bool) []row {
	waiters, contenders, seconds := 100_000, 1000, 10
	if quick || n < 20_000 {
		waiters, contenders, seconds = 20_000, 300, 4
	}
	share := func() []figure {
		return []figure{{key: "rate", title: "throughput", unit: "/s"}, {key: "share", title: "of that without limits", unit: "%"}}
	}
	places := func(most int) store.Limit { return store.Limit{Name: "key", Kind: store.LimitSemaphore, Max: most} }
	keys := func(n int) func(int) *store.LimitUse {
		return func(i int) *store.LimitUse { return &store.LimitUse{Limit: "key", Key: strconv.Itoa(i % n)} }
	}
	one := func(name, title string, figures []figure, l limited) row {
		return row{name: "limits-" + name, title: title, figures: figures, sides: []side{{name: ours, measure: l.measure}}}
	}
	tenant := func(i int) *store.LimitUse { // one has 90 %
		if i%10 > 0 {
			return keys(1)(0)
		}
		return keys(10_000)(1 + i)
	}
	perSecond := 1000
	second := func(i int) *store.LimitUse { return &store.LimitUse{Limit: "key", Key: strconv.Itoa(i % 1000)} }
	full := func(int) *store.LimitUse { return &store.LimitUse{Limit: "key", Key: "full"} }
	return []row{
		one("unlimited", fmt.Sprintf("drain %d unlimited runs, with a limit that was used in the schema", n), share(), limited{n: n, limit: places(1), beside: 1, besideUse: full}),
		one("one-key", fmt.Sprintf("drain %d runs of one key, 100 places", n), share(), limited{n: n, limit: places(100), use: keys(1)}),
		one("100-keys", fmt.Sprintf("drain %d runs of 100 keys, 10 places each", n), share(), limited{n: n, limit: places(10), use: keys(100)}),
		one("10000-keys", fmt.Sprintf("drain %d runs of 10,000 keys, one place each", n), share(), limited{n: n, limit: places(1), use: keys(10_000)}),
		one("tenant", fmt.Sprintf("drain %d runs of 10,000 keys, one of which has 90 %%, 100 places each", n), share(), limited{n: n, limit: places(100), use: tenant}),
		one("waiters", fmt.Sprintf("drain %d unlimited runs beside %d that wait for a limit with no place", n, waiters), share(),
			limited{n: n, limit: places(0), beside: waiters, besideUse: full}),
		// Each key starts a run immediately, so a short drain would measure little but that.
		one("seconds", fmt.Sprintf("drain %d unlimited runs beside 1,000 keys at one start a second each", 5*n), share(),
			limited{n: 5 * n, limit: store.Limit{Name: "key", Kind: store.LimitFixedWindow, Max: 1, Period: time.Second}, beside: 10_000, besideUse: second}),
		one("river-1145", "drain 120 runs of 4.4 s by 4 workers of 10, a limit of 40 (river#1145)", share(),
			limited{n: 120, limit: places(40), use: keys(1), lasts: 4400 * time.Millisecond, workers: 4, concurrency: 10}),
		one("mutex", fmt.Sprintf("%d runs of 1 ms contend for one place", contenders), []figure{
			{key: "p50", title: "from an end to the next start, p50", unit: "ms", less: true}, {key: "p95", title: "p95", unit: "ms", less: true, bound: 20},
			{key: "vain", title: "claims that got nothing", unit: "/run", less: true, plain: true},
		}, limited{n: contenders, limit: places(1), use: keys(1), lasts: time.Millisecond, workers: 2, alone: true, tell: handedOver}),
		one("rate", fmt.Sprintf("%d runs under a bucket of %d a second", seconds*perSecond, perSecond), []figure{
			{key: "used", title: "of what the rate allows", unit: "%"},
		}, limited{n: seconds * perSecond, limit: store.Limit{Name: "key", Kind: store.LimitTokenBucket, Max: perSecond, Period: time.Second, Burst: 50},
			use: keys(1), alone: true, tell: func(r *limitedResult, s sample) {
				slices.SortFunc(r.starts, time.Time.Compare)
				took := r.starts[len(r.starts)-1].Sub(r.starts[0]).Seconds()
				s["used"] = 100 * float64(len(r.starts)-50) / (took * float64(perSecond)) // the burst is there from the start
			}}),
	}
}

// handedOver tells how long a place was free.
func handedOver(r *limitedResult, s sample) {
	slices.SortFunc(r.starts, time.Time.Compare)
	slices.SortFunc(r.ends, time.Time.Compare)
	var gaps []float64
	for i := 1; i < len(r.starts); i++ {
		gaps = append(gaps, r.starts[i].Sub(r.ends[i-1]).Seconds()*1000)
	}
	slices.Sort(gaps)
	s["p50"], s["p95"], s["vain"] = gaps[len(gaps)/2], gaps[len(gaps)*95/100], float64(r.claims)/float64(len(r.starts))
}

func (l limited) measure(ctx context.Context, b *bench, label string) (sample, error) {
	reference := 0.0
	if !l.alone {
		plain := l
		plain.use, plain.beside = nil, 0
		result, err := plain.drain(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("%s without limits: %w", label, err)
		}
		reference = float64(l.n) / result.took.Seconds()
	}
	result, err := l.drain(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	found := sample{"rate": float64(l.n) / result.took.Seconds()}
	if !l.alone {
		found["share"] = 100 * found["rate"] / reference
	}
	if l.tell != nil {
		l.tell(result, found)
	}
	return found, nil
}

// drain executes the runs in a place of its own.
func (l limited) drain(ctx context.Context, b *bench) (*limitedResult, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := l.load(ctx, db); err != nil {
		return nil, err
	}
	if err := w.vacuum(ctx); err != nil {
		return nil, err
	}
	result, err := l.work(ctx, w.target)
	b.noted(ctx, w, fmt.Sprintf("limits, %d beside", l.beside))
	return result, err
}

// load enqueues the runs, and those beside them, whose numbers are negative.
func (l limited) load(ctx context.Context, db backend.Store) error {
	if l.use != nil || l.beside > 0 {
		if err := db.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: l.limit, By: "bench"}); err != nil {
			return err
		}
	}
	job, client := durable.NewJob[args](jobName), durable.NewClient(db)
	enqueue := func(n int, number func(int) int64, use func(int) *store.LimitUse) error {
		for done := 0; done < n; done += 2000 {
			runs := make([]durable.NewRun, min(2000, n-done))
			for i := range runs {
				if runs[i] = job.New(args{N: number(done + i)}); use != nil {
					runs[i].Limits = []store.LimitUse{*use(done + i)}
				}
			}
			if _, err := client.Enqueue(ctx, runs...); err != nil {
				return fmt.Errorf("load: %w", err)
			}
		}
		return nil
	}
	if err := enqueue(l.beside, func(i int) int64 { return int64(-1 - i) }, l.besideUse); err != nil {
		return err
	}
	return enqueue(l.n, func(i int) int64 { return int64(firstNumber + i) }, l.use)
}

// work has workers execute the runs, each in a store of its own.
func (l limited) work(ctx context.Context, target string) (*limitedResult, error) {
	result, done := &limitedResult{}, make(chan struct{})
	var executed atomic.Int64
	var claims atomic.Int64
	hooks := observe.Hooks{StoreCalled: func(c observe.StoreCall) {
		if c.Verb == "claim" && c.Runs == 0 && c.Err == nil {
			claims.Add(1)
		}
	}}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	concurrency := l.concurrency
	if concurrency == 0 {
		concurrency = 200
	}
	began := time.Now()
	for i := range max(l.workers, 1) {
		db, err := backend.Open(ctx, target, backend.Config{Logger: logger})
		if err != nil {
			return nil, err
		}
		worker := durable.NewWorker(db, durable.WorkerConfig{Name: fmt.Sprintf("w%d", i+1), MaxConcurrentRuns: concurrency, Logger: logger,
			Process: new(durable.Process), Hooks: hooks})
		durable.Register(worker, durable.NewJob[args](jobName), func(_ context.Context, run *durable.Run[args]) error {
			if run.Args.N < 0 {
				return nil
			}
			result.note(&result.starts)
			if l.lasts > 0 {
				time.Sleep(l.lasts)
			}
			result.note(&result.ends)
			if executed.Add(1) == int64(l.n) {
				close(done)
			}
			return nil
		})
		running.Go(func() {
			defer db.Close()
			if err := worker.Run(working); err != nil {
				logger.Error("worker", "error", err)
			}
		})
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(2 * stall):
		return nil, fmt.Errorf("%d of %d runs were executed within %v", executed.Load(), l.n, 2*stall)
	}
	result.took, result.claims = time.Since(began), claims.Load()
	return result, nil
}
