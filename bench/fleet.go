package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// fleet is several identical workers, each with a store and connections of its
// own, that get single enqueues from one process at a moderate rate: what most
// users run. Every setting is its default.
type fleet struct {
	workers   int
	processes int           // that the workers are in; zero: one
	rate      int           // runs a second
	kinds     int           // of jobs; zero: one
	keys      int           // of a limit that is never full; zero: no limit
	delayed   bool          // runs are due after delayedBy
	retried   bool          // some fail once, see spec
	within    bool          // each in a transaction of the caller's
	unique    bool          // each with a key of its own
	callers   int           // that enqueue in turn, each with a store of its own as a process has; zero: one
	busy      time.Duration // of each execution
	on        engine        // zero: PostgreSQL
	poll      bool          // without wake-ups
	pooled    bool          // behind a PgBouncer, and so without wake-ups
	collector string        // see spec
	window    time.Duration
}

// fleetWarm is how long a fleet works before it is measured.
const fleetWarm = 4 * time.Second

// started is a fleet at work, and what enqueues for it.
type started struct {
	*watch
	shared   *counters
	children []*child
	queue    *enqueuer
	unpool   func()
}

func (s *started) close() {
	if s.queue != nil {
		s.queue.close()
	}
	endAll(s.children)
	if s.shared != nil {
		s.shared.close()
	}
	if s.unpool != nil {
		s.unpool()
	}
	s.watch.close()
}

// begin starts the workers and waits until their start is over.
func (f fleet) begin(ctx context.Context, b *bench, name string) (*started, error) {
	w, err := b.place(ctx, name, f.on)
	if err != nil {
		return nil, err
	}
	s := &started{watch: w}
	if err := f.join(ctx, b, s, name); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (f fleet) join(ctx context.Context, b *bench, s *started, name string) (err error) {
	c, err := contenderOf(name)
	if err != nil {
		return err
	}
	if s.shared, err = newCounters(b.dir); err != nil {
		return err
	}
	target := s.target
	if f.pooled {
		if target, s.unpool, err = b.server.pool(ctx, target); err != nil {
			return err
		}
	}
	for slot := range max(f.processes, 1) {
		child, err := spawn(spec{Contender: name, Role: working, Target: target, Counters: s.shared.path, Slot: slot, Latency: true,
			Workers: f.workers / max(f.processes, 1), Lanes: f.kinds, Keys: f.keys, PollOnly: f.poll || f.pooled, Retried: f.retried, Busy: f.busy, Collector: f.collector})
		if err != nil {
			return err
		}
		s.children = append(s.children, child)
	}
	if err := start(s.children); err != nil {
		return err
	}
	if err := pause(ctx, fleetWarm); err != nil {
		return err
	}
	s.queue, err = inTurn(max(f.callers, 1), func() (*enqueuer, error) {
		return c.enqueuer(ctx, spec{Contender: name, Target: target, Lanes: f.kinds, Keys: f.keys, Delayed: f.delayed, Retried: f.retried, Within: f.within, Unique: f.unique})
	})
	return err
}

// inTurn is several enqueuers, each of which takes one call after the other.
func inTurn(n int, open func() (*enqueuer, error)) (*enqueuer, error) {
	var all []*enqueuer
	end := func() {
		for _, one := range all {
			one.close()
		}
	}
	for range n {
		one, err := open()
		if err != nil {
			end()
			return nil, err
		}
		all = append(all, one)
	}
	var calls atomic.Int64
	return &enqueuer{close: end, enqueue: func(ctx context.Context, numbers []int64) error {
		return all[int(calls.Add(1))%n].enqueue(ctx, numbers)
	}}, nil
}

// reports are the usages of all processes.
func (s *started) reports() (all usage, err error) {
	for _, c := range s.children {
		u, err := c.report()
		if err != nil {
			return usage{}, err
		}
		all.CPU += u.CPU
		all.Samples, all.Firsts = append(all.Samples, u.Samples...), append(all.Firsts, u.Firsts...)
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// pace enqueues one run after the other for a while, and returns how many. What is
// late is made up for, as callers that do not wait for each other would.
func (f fleet) pace(ctx context.Context, e *enqueuer, d time.Duration) (int, error) {
	calls, faults := make(chan int64, 4*f.rate), make(chan error, 8)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			var failed error
			for at := range calls {
				if err := e.enqueue(ctx, []int64{at}); err != nil {
					failed = err
				}
			}
			faults <- failed
		})
	}
	began, n := time.Now(), 0
	for ; time.Since(began) < d && ctx.Err() == nil; n++ {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(f.rate))
		time.Sleep(time.Until(due))
		at := time.Now()
		if f.delayed {
			at = at.Add(delayedBy)
		}
		calls <- at.UnixNano()
	}
	close(calls)
	callers.Wait()
	var err error
	for range 8 {
		err = errors.Join(err, <-faults)
	}
	return n, errors.Join(err, ctx.Err())
}

// tally is what the workers and the server have counted.
type tally struct {
	workers, server time.Duration // CPU
	commits, asked  float64
	at              time.Time
}

func (s *started) tally(ctx context.Context) (t tally, err error) {
	t.at = time.Now()
	u, err := s.reports()
	if err != nil {
		return t, err
	}
	if t.workers = time.Duration(u.CPU); s.pid == 0 {
		return t, nil
	}
	if t.server, err = familyCPU(s.pid); err != nil || s.conn == nil {
		return t, err
	}
	err = s.conn.QueryRow(ctx, "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()").Scan(&t.commits)
	if err != nil || !s.server.statements {
		return t, err
	}
	return t, s.maintenance(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT coalesce(sum(calls), 0)::float8 "+fromStatements+" AND query LIKE '%SKIP LOCKED%' AND (query LIKE '%DELETE FROM durable.ready%' OR query LIKE '%attempted_by%')",
			s.conn.Config().Database).Scan(&t.asked)
	})
}

func (f fleet) measure(ctx context.Context, b *bench, name, label string) (sample, error) {
	s, err := f.begin(ctx, b, name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	warm, err := f.pace(ctx, s.queue, fleetWarm)
	if err != nil {
		return nil, err
	}
	before, err := s.tally(ctx)
	if err != nil {
		return nil, err
	}
	n, err := f.pace(ctx, s.queue, f.window)
	if err != nil {
		return nil, err
	}
	after, err := s.tally(ctx)
	if err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return s.shared.handled() >= int64(warm+n) }, 30*time.Second); err != nil {
		return nil, fmt.Errorf("%s: %d of %d runs began: %w", name, s.shared.handled(), warm+n, err)
	}
	b.noted(ctx, s.watch, label)
	s.queue.close()
	s.queue = nil
	u, err := s.reports()
	if err != nil {
		return nil, err
	}
	seconds, waits := after.at.Sub(before.at).Seconds(), u.Samples
	if f.processes <= 1 { // in the order in which they began
		waits = waits[min(warm, len(waits)):]
	}
	slices.Sort(waits)
	found := sample{"go": milliseconds(after.workers-before.workers) / float64(n), "rate": float64(n) / seconds,
		"p50": percentile(waits, 0.50), "p99": percentile(waits, 0.99)}
	if s.pid != 0 {
		found["server"], found["each"] = milliseconds(after.server-before.server)/seconds, milliseconds(after.server-before.server)/float64(n)
	}
	if s.conn == nil {
		return found, nil
	}
	connections, err := s.count(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+loadName+"'")
	if err != nil {
		return nil, err
	}
	found["commits"], found["connections"] = (after.commits-before.commits)/seconds, float64(connections)/float64(f.workers)
	if s.server.statements {
		found["claims"] = (after.asked - before.asked) / float64(n)
	}
	return found, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// burst enqueues many runs in one call, and waits for the first of them on each
// worker.
func (f fleet) burst(ctx context.Context, b *bench, name string, n int) (sample, error) {
	s, err := f.begin(ctx, b, name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	list := make([]int64, n)
	at := time.Now()
	for i := range list {
		list[i] = at.UnixNano()
	}
	if err := s.queue.enqueue(ctx, list); err != nil {
		return nil, err
	}
	took := time.Since(at)
	if err := until(ctx, func() bool { return s.shared.handled() >= int64(n) }, time.Minute); err != nil {
		return nil, err
	}
	over := time.Since(at)
	u, err := s.reports()
	if err != nil {
		return nil, err
	}
	stored := milliseconds(took)
	found := sample{"enqueue": stored, "all": milliseconds(over), "reached": float64(len(u.Firsts)), "last": 0}
	for _, first := range u.Firsts {
		found["last"] = max(found["last"], first-stored)
	}
	return found, nil
}
