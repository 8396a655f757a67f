package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"
)

// sample is what one measurement found, by the keys of its row's figures.
type sample map[string]float64

// drain is a measurement of how fast workers empty a store.
type drain struct {
	worker    spec
	on        engine
	n         int                                         // executions
	fill      func(context.Context, *watch) error         // puts in what is executed; nil: n plain runs
	processes int                                         // zero: one
	ballast   func(context.Context, *watch) error         // puts in what must not disturb
	held      bool                                        // a snapshot is open meanwhile
	old       int                                         // runs that ended long ago and are to be deleted meanwhile
	inspect   func(context.Context, *watch, sample) error // reads more of what was executed; nil: nothing
	pooled    bool                                        // the workers connect through a PgBouncer
	label     string
}

// stall is how long nothing may happen before a measurement is given up.
const stall = 60 * time.Second

// drain puts n runs into an empty place, lets workers execute them, and takes
// the time from their start until all are durably finished.
func (b *bench) drain(ctx context.Context, d drain) (sample, error) {
	w, err := b.place(ctx, d.worker.Contender, d.on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if d.fill == nil {
		d.fill = func(ctx context.Context, w *watch) error {
			return b.load(ctx, w, spec{Contender: d.worker.Contender, Lanes: d.worker.Lanes}, d.n)
		}
	}
	if err := d.fill(ctx, w); err != nil {
		return nil, err
	}
	if d.ballast != nil {
		if err := d.ballast(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.vacuum(ctx), w.forget(ctx)); err != nil {
		return nil, err
	}
	if d.held {
		release, err := w.hold(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	found, err := b.work(ctx, w, d)
	if err == nil && d.inspect != nil {
		err = d.inspect(ctx, w, found)
	}
	return found, err
}

// load enqueues n runs from this process, as fast as the contender can.
func (b *bench) load(ctx context.Context, w *watch, s spec, n int) error {
	c, err := contenderOf(s.Contender)
	if err != nil {
		return err
	}
	s.Target, s.Fast = w.target, true
	e, err := c.enqueuer(ctx, s)
	if err != nil {
		return err
	}
	defer e.close()
	const batch = 5000
	for done := 0; done < n; done += batch {
		if err := e.enqueue(ctx, numbers(done, min(batch, n-done))); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

// work runs the workers of a drain whose place is full.
func (b *bench) work(ctx context.Context, w *watch, d drain) (sample, error) {
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	unpool, err := b.through(ctx, w, &d)
	if err != nil {
		return nil, err
	}
	defer unpool()
	children, err := b.spawn(w, d, shared)
	defer func() { endAll(children) }()
	if err != nil {
		return nil, err
	}
	before, err := spentSoFar(ctx, w)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err = start(children); err == nil {
		err = untilSettled(ctx, w, d, shared)
	}
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	cpu, peak, err := reports(children)
	if err != nil {
		return nil, err
	}
	endAll(children)
	children = nil
	unpool() // it keeps connections
	if err = w.alone(ctx); err == nil {
		err = w.slow(ctx, &after)
	}
	if err != nil {
		return nil, err
	}
	b.noted(ctx, w, d.label)
	found := drained(d.n, took, cpu, before, after)
	found["peak"] = float64(peak) / (1 << 20)
	if d.processes > 1 {
		found["least"] = 100 * float64(shared.least(d.processes)) / float64(d.n)
	}
	if d.old > 0 {
		left, err := swept(ctx, w, d, took, found)
		if err != nil {
			return nil, err
		}
		d.n += left
	}
	return found, verify(ctx, w, d)
}

// through sends the drain through a pooler, if it is to go there.
func (b *bench) through(ctx context.Context, w *watch, d *drain) (unpool func(), err error) {
	if !d.pooled {
		return func() {}, nil
	}
	d.worker.Target, unpool, err = b.server.pool(ctx, w.target)
	return unpool, err
}

// swept notes how many old runs were deleted in a second, and returns how many
// are left.
func swept(ctx context.Context, w *watch, d drain, took time.Duration, found sample) (left int, err error) {
	if left, err = w.count(ctx, countOld); err == nil {
		found["swept"] = float64(d.old-left) / took.Seconds()
	}
	return left, err
}

func endAll(children []*child) {
	for _, c := range children {
		c.end()
	}
}

// reports adds up what the workers have used, and finds the largest of them.
func reports(children []*child) (cpu time.Duration, peak int64, err error) {
	for _, c := range children {
		u, err := c.report()
		if err != nil {
			return 0, 0, err
		}
		cpu, peak = cpu+time.Duration(u.CPU), max(peak, u.Peak)
	}
	return cpu, peak, nil
}

// start lets them all begin.
func start(children []*child) error {
	for _, c := range children {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return nil
}

// spentSoFar takes both kinds of figures.
func spentSoFar(ctx context.Context, w *watch) (seen spent, err error) {
	if seen, err = w.fast(ctx); err == nil {
		err = w.slow(ctx, &seen)
	}
	return seen, err
}

func (b *bench) spawn(w *watch, d drain, shared *counters) (children []*child, err error) {
	for slot := range max(d.processes, 1) {
		s := d.worker
		s.Role, s.Counters, s.Slot = working, shared.path, slot
		if s.Target == "" {
			s.Target = w.target
		}
		if slot == 0 {
			s.Profile = b.profile(d.label)
		}
		c, err := spawn(s)
		if err != nil {
			return children, err
		}
		children = append(children, c)
	}
	return children, nil
}

// profile is the file for a child's CPU profile; empty: none.
func (b *bench) profile(label string) string {
	if b.profiles == "" {
		return ""
	}
	return filepath.Join(b.profiles, label+".pprof")
}

// untilSettled waits until every run was executed, and then until nothing is
// left to be written.
func untilSettled(ctx context.Context, w *watch, d drain, shared *counters) error {
	c, err := contenderOf(d.worker.Contender)
	if err != nil {
		return err
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	last, since := int64(-1), time.Now()
	for {
		handled := shared.handled()
		if handled >= int64(d.n) {
			busy, err := c.unsettled(ctx, w)
			if err != nil || !busy {
				return err
			}
		}
		if handled != last {
			last, since = handled, time.Now()
		}
		if time.Since(since) > stall {
			return fmt.Errorf("%s made no progress after %d of %d runs", d.worker.Contender, handled, d.n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}

// verify compares what the database says with what should be.
func verify(ctx context.Context, w *watch, d drain) error {
	c, err := contenderOf(d.worker.Contender)
	if err != nil {
		return err
	}
	found, err := c.finished(ctx, w)
	if err == nil && found != d.n {
		err = fmt.Errorf("%s: %d of %d runs are finished in the store", d.worker.Contender, found, d.n)
	}
	return err
}

// drained makes the figures of a drain.
func drained(n int, took, cpu time.Duration, before, after spent) sample {
	runs := float64(n)
	s := sample{"rate": runs / took.Seconds(), "go": micro(cpu) / runs, "seconds": took.Seconds()}
	server := after.cpu - before.cpu
	if server > 0 {
		s["server"] = micro(server) / runs
	}
	if cpu > 0 {
		s["cpu"] = micro(server+cpu) / runs
		rest := max(after.machine-before.machine-server-cpu, 0)
		s["others"] = 100 * rest.Seconds() / (took.Seconds() * float64(runtime.NumCPU()))
	}
	if after.wal > 0 {
		s["wal"] = (after.wal - before.wal) / runs
		s["dead"] = (after.updated + after.deleted - before.updated - before.deleted) / runs
		s["hot"] = (after.hot - before.hot) / runs
	}
	if after.statements > 0 {
		s["statements"] = (after.statements - before.statements) / runs
	}
	return s
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
