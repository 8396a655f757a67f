package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/poller"
)

// herd is a fleet of idle workers, each with a poller as workers have it, that
// ask a database which only counts. All begin at the same instant, as after a
// deploy.
type herd struct {
	workers  int
	interval time.Duration
	jitter   float64
	notified bool    // every run enqueued wakes every worker
	shared   bool    // every run enqueued calls one worker, as PostgreSQL's store has it
	rate     float64 // runs enqueued each second
	window   time.Duration
}

const herdBucket = 100 * time.Millisecond

// counting is the database of a herd.
type counting struct {
	began   time.Time
	buckets []atomic.Int64 // questions, each herdBucket

	mu      sync.Mutex
	waiting []time.Time // when each run that waits was enqueued
	waits   []float64   // ms from enqueue to the claim
}

func (c *counting) ask(context.Context, int) (poller.Answer[struct{}], error) {
	if i := int(time.Since(c.began) / herdBucket); i < len(c.buckets) {
		c.buckets[i].Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return poller.Answer[struct{}]{Next: -1}, nil
	}
	c.waits = append(c.waits, milliseconds(time.Since(c.waiting[0])))
	c.waiting = c.waiting[1:]
	return poller.Answer[struct{}]{Items: make([]struct{}, 1), Left: len(c.waiting) > 0, Next: -1}, nil
}

// run lets the fleet poll for a while.
func (h herd) run(ctx context.Context) *counting {
	c := &counting{began: time.Now(), buckets: make([]atomic.Int64, int(h.window/herdBucket))}
	ctx, cancel := context.WithTimeout(ctx, h.window)
	defer cancel()
	fleet := make([]*poller.Poller[struct{}], h.workers)
	var all sync.WaitGroup
	for i := range fleet {
		fleet[i] = poller.New(poller.Config{Capacity: 100, Batch: 100, Interval: h.interval, Jitter: h.jitter, Linger: 5 * time.Millisecond,
			Elapsed: lease.Elapsed, Random: rand.Float64}, c.ask, func(struct{}) { fleet[i].Free(1) })
		all.Go(func() { fleet[i].Run(ctx) })
	}
	if h.rate > 0 {
		ticks := time.NewTicker(time.Duration(float64(time.Second) / h.rate))
		defer ticks.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case now := <-ticks.C:
				c.mu.Lock()
				c.waiting = append(c.waiting, now)
				c.mu.Unlock()
				switch {
				case h.shared:
					fleet[rand.IntN(len(fleet))].Call(0)
				case h.notified:
					for _, p := range fleet {
						p.Wake()
					}
				}
			}
		}
	}
	all.Wait()
	return c
}

// measure tells the load that the fleet is, its first interval left out.
func (h herd) measure(ctx context.Context, b *bench, label string) (sample, error) {
	c := h.run(ctx)
	var l line
	var counts []float64
	l.name = label
	for i := range c.buckets {
		n := float64(c.buckets[i].Load())
		l.x, l.y = append(l.x, (time.Duration(i)*herdBucket).Seconds()), append(l.y, n)
		if at := time.Duration(i) * herdBucket; at > h.interval/2 {
			counts = append(counts, n)
		}
	}
	b.keep(plot{name: h.title(), title: fmt.Sprintf("%d workers that began together, polling each %v", h.workers, h.interval),
		across: "seconds", along: "questions in 100 ms"}, l)
	var sum float64
	for _, n := range counts {
		sum += n
	}
	found := sample{"asked": sum / (float64(len(counts)) * herdBucket.Seconds()), "most": slices.Max(counts)}
	if len(c.waits) > 0 {
		slices.Sort(c.waits)
		found["p50"], found["p99"] = percentile(c.waits, 0.5), percentile(c.waits, 0.99)
	}
	return found, nil
}

func (h herd) title() string {
	if h.notified {
		return fmt.Sprintf("herd-%d-notified", h.workers)
	}
	return fmt.Sprintf("herd-%d", h.workers)
}

// herdRows are idle fleets: polling with and without jitter, and woken by
// notifications.
func herdRows(quick bool) []row {
	window := 40 * time.Second
	if quick {
		window = 12 * time.Second
	}
	figures := []figure{
		{key: "asked", title: "questions", unit: "/s", less: true}, {key: "most", title: "most in 100 ms", less: true},
		{key: "p50", title: "from enqueue to claim, p50", unit: "ms", less: true}, {key: "p99", title: "p99", unit: "ms", less: true},
	}
	var all []row
	for _, workers := range []int{1000, 10_000} {
		polling := herd{workers: workers, interval: 5 * time.Second, window: window}
		fleet := func(name string, h herd) side {
			return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return h.measure(ctx, b, name) }}
		}
		spread := polling
		spread.jitter = 0.2
		woken := spread
		woken.notified, woken.rate = true, 20
		turns := woken
		turns.shared = true
		rare := woken
		rare.rate = 1
		all = append(all,
			row{name: polling.title(), long: true, title: fmt.Sprintf("%d idle workers that began together and poll each 5 s", workers), figures: figures[:2],
				sides: []side{fleet("jitter 20 %", spread), fleet("no jitter", polling)}},
			row{name: woken.title(), long: true, title: fmt.Sprintf("%d idle workers, notified of every run in turns or all together", workers), figures: figures,
				sides: []side{fleet("in turns, 20 runs a second", turns), fleet("all, 20 runs a second", woken), fleet("all, 1 run a second", rare)}})
	}
	return all
}
