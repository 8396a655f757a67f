package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/redislock"
	"github.com/durable-worker/durable-worker/store/backend"
	"github.com/durable-worker/durable-worker/store/memory"
)

// contention is many who want one lock: each holds it for a moment, gives it
// back and wants it again.
type contention struct {
	on        engine
	processes int  // each with connections and a Locker of its own
	each      int  // waiters of one process
	apart     bool // they hear nothing of other processes' releases
	holds     time.Duration
	window    time.Duration
}

// onMemory is for locks alone: nothing else is measured there.
const onMemory engine = "memory"

// countedLocks counts what a store of locks is asked.
type countedLocks struct {
	lock.Locks
	acquires *atomic.Int64
}

// Acquire passes the call on.
func (c countedLocks) Acquire(ctx context.Context, request lock.Request) (lock.Answer, error) {
	c.acquires.Add(1)
	return c.Locks.Acquire(ctx, request)
}

// ledger is written by the holders, who must be alone while they do.
type ledger struct {
	inside  atomic.Int32
	broken  atomic.Int64
	fence   atomic.Uint64
	lastEnd atomic.Int64
	gaps    sync.Mutex
	waits   []float64 // ms between a release and the next grant
}

// locks measures contention on one name.
func (b *bench) locks(ctx context.Context, c contention) (sample, error) {
	stores, closeAll, err := b.lockStores(ctx, c)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	var asked atomic.Int64
	var book ledger
	grants := make([]int64, c.processes*c.each)
	faults := make([]error, len(grants))
	bounded, cancel := context.WithTimeout(ctx, c.window)
	defer cancel()
	var all sync.WaitGroup
	var lockers []*lock.Locker
	for p, db := range stores {
		locker := lock.NewLocker(countedLocks{db, &asked}, lock.LockerConfig{
			Owner: fmt.Sprintf("process-%d", p), Waits: c.waits(db),
		})
		lockers = append(lockers, locker)
		for i := range c.each {
			n := p*c.each + i
			all.Go(func() { grants[n], faults[n] = book.contend(bounded, locker, c.holds) })
		}
	}
	all.Wait()
	for _, locker := range lockers {
		locker.Close()
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if n := book.broken.Load(); n > 0 {
		return nil, fmt.Errorf("%s: the ledger has %d grants beside another, or with a fence that did not rise", c.on, n)
	}
	return c.figures(grants, asked.Load(), book.waits), nil
}

// waits is what wakes waiters of other processes; nil without.
func (c contention) waits(locks lock.Locks) lock.Waits {
	if c.apart {
		return nil
	}
	return locks
}

// contend wants the lock until ctx ends.
func (l *ledger) contend(ctx context.Context, locker *lock.Locker, holds time.Duration) (grants int64, err error) {
	terms := lock.Terms{Wait: -1}
	for ctx.Err() == nil {
		grant, err := locker.Acquire(ctx, "contended", terms)
		if err != nil {
			if ctx.Err() != nil {
				return grants, nil
			}
			return grants, err
		}
		if l.inside.Add(1) != 1 || l.fence.Swap(uint64(grant.Fence)) >= uint64(grant.Fence) { //nolint:gosec // never negative
			l.broken.Add(1)
		}
		if ended := l.lastEnd.Load(); ended > 0 {
			l.gaps.Lock()
			l.waits = append(l.waits, float64(time.Now().UnixNano()-ended)/1e6)
			l.gaps.Unlock()
		}
		grants++
		time.Sleep(holds)
		l.inside.Add(-1)
		l.lastEnd.Store(time.Now().UnixNano())
		if err := locker.Release(ctx, grant); err != nil {
			return grants, err
		}
	}
	return grants, nil
}

func (c contention) figures(grants []int64, asked int64, waits []float64) sample {
	var sum, squares float64
	for _, n := range grants {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	slices.Sort(grants)
	slices.Sort(waits)
	found := sample{
		"rate": sum / c.window.Seconds(), "asked": float64(asked) / sum,
		"fair": 100 * sum * sum / (float64(len(grants)) * squares), "least": float64(grants[0]), "most": float64(grants[len(grants)-1]),
	}
	if len(waits) > 0 {
		found["gap"], found["gap99"] = percentile(waits, 0.5), percentile(waits, 0.99)
	}
	return found
}

// lockStores opens what each process would open.
func (b *bench) lockStores(ctx context.Context, c contention) (stores []lock.Locks, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, one := range slices.Backward(closers) {
			one()
		}
	}
	if c.on == onMemory {
		one := memory.New(memory.Config{}).Locks()
		return slices.Repeat([]lock.Locks{one}, c.processes), closeAll, nil
	}
	contender := ours
	if c.on == onRedis {
		contender = redis // prepares nothing
	}
	w, err := b.place(ctx, contender, c.on)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, w.close)
	for range c.processes {
		if c.on == onRedis {
			opened, err := redislock.Open(ctx, "unix://"+w.target, redislock.Config{})
			if err != nil {
				closeAll()
				return nil, nil, err
			}
			stores, closers = append(stores, opened), append(closers, func() { _ = opened.Close() })
			continue
		}
		opened, err := backend.Open(ctx, w.target, backend.Config{})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		stores, closers = append(stores, opened.Locks()), append(closers, opened.Close)
	}
	return stores, closeAll, nil
}

// lockRows are 200 who want one lock for a minute, on each back end.
func lockRows(quick bool) []row {
	window := time.Minute
	if quick {
		window = 5 * time.Second
	}
	var all []row
	for _, on := range []engine{onMemory, onRedis, onPostgres, onSQLite} {
		all = append(all, lockRow("locks-"+string(on), "", contention{on: on, processes: 20, each: 10, holds: time.Millisecond, window: window}),
			lockRow("locks-apart-"+string(on), ", hearing nothing of each other's releases",
				contention{on: on, processes: 20, each: 10, holds: time.Millisecond, window: window, apart: true}))
	}
	return all
}

func lockRow(name, how string, c contention) row {
	return row{
		name: name, long: true,
		title: fmt.Sprintf("200 in 20 processes%s want one lock of %s for %v, each holding it 1 ms; never two concurrently", how, c.on, c.window),
		figures: []figure{
			{key: "rate", title: "grants", unit: "/s"}, {key: "asked", title: "store asked", unit: "/grant", less: true},
			{key: "gap", title: "from release to the next grant, p50", unit: "ms", less: true}, {key: "gap99", title: "p99", unit: "ms", less: true},
			{key: "fair", title: "fairness (Jain)", unit: "%"}, {key: "least", title: "grants of the unluckiest"}, {key: "most", title: "of the luckiest"},
		},
		sides: []side{{name: ours, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.locks(ctx, c) }}},
	}
}
