package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// fleet is several identical workers, each with a store and connections of its
// own, that get single enqueues from one process at a moderate rate: what most
// users run. Every setting is its default.
type fleet struct {
	workers   int
	rate      int    // runs a second
	kinds     int    // of jobs; zero: one
	collector string // see spec
	window    time.Duration
}

// fleetWarm is how long a fleet works before it is measured.
const fleetWarm = 4 * time.Second

// started is a fleet at work, and what enqueues for it.
type started struct {
	*watch
	shared *counters
	child  *child
	queue  *enqueuer
}

func (s *started) close() {
	if s.queue != nil {
		s.queue.close()
	}
	if s.child != nil {
		s.child.end()
	}
	if s.shared != nil {
		s.shared.close()
	}
	s.watch.close()
}

// begin starts the workers and waits until their start is over.
func (f fleet) begin(ctx context.Context, b *bench, name string) (*started, error) {
	w, err := b.place(ctx, name, onPostgres)
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
	work := spec{Contender: name, Role: working, Target: s.target, Counters: s.shared.path, Latency: true, Workers: f.workers, Lanes: f.kinds, Collector: f.collector}
	if s.child, err = spawn(work); err != nil {
		return err
	}
	if err := s.child.begin(); err != nil {
		return err
	}
	if err := pause(ctx, fleetWarm); err != nil {
		return err
	}
	s.queue, err = c.enqueuer(ctx, spec{Contender: name, Target: s.target, Lanes: f.kinds})
	return err
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
		calls <- time.Now().UnixNano()
	}
	close(calls)
	callers.Wait()
	var err error
	for range 8 {
		err = errors.Join(err, <-faults)
	}
	return n, errors.Join(err, ctx.Err())
}

// tally is what the server has counted.
type tally struct {
	cpu            time.Duration
	commits, asked float64
	at             time.Time
}

func (s *started) tally(ctx context.Context) (t tally, err error) {
	t.at = time.Now()
	if t.cpu, err = familyCPU(s.pid); err != nil {
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
	connections, err := s.count(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+loadName+"'")
	if err != nil {
		return nil, err
	}
	u, err := s.child.report()
	if err != nil {
		return nil, err
	}
	seconds, waits := after.at.Sub(before.at).Seconds(), u.Samples[min(warm, len(u.Samples)):]
	slices.Sort(waits)
	found := sample{
		"server": float64((after.cpu - before.cpu).Microseconds()) / 1e3 / seconds, "each": float64((after.cpu - before.cpu).Microseconds()) / 1e3 / float64(n),
		"commits": (after.commits - before.commits) / seconds, "rate": float64(n) / seconds,
		"p50": percentile(waits, 0.50), "p99": percentile(waits, 0.99), "connections": float64(connections) / float64(f.workers),
	}
	if s.server.statements {
		found["claims"] = (after.asked - before.asked) / float64(n)
	}
	return found, nil
}

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
	u, err := s.child.report()
	if err != nil {
		return nil, err
	}
	stored := float64(took.Microseconds()) / 1e3
	found := sample{"enqueue": stored, "all": float64(over.Microseconds()) / 1e3, "reached": float64(len(u.Firsts)), "last": 0}
	for _, first := range u.Firsts {
		found["last"] = max(found["last"], first-stored)
	}
	return found, nil
}

func fleetFigures() []figure {
	return []figure{
		{key: "server", title: "server CPU", unit: "ms/s", less: true, ratio: 1.25}, {key: "each", title: "server CPU", unit: "ms/run", less: true},
		{key: "commits", title: "transactions", unit: "/s", less: true}, {key: "claims", title: "claims", unit: "/run", less: true, bound: 2},
		{key: "p50", title: "from enqueue to start, p50", unit: "ms", less: true, ratio: 1}, {key: "p99", title: "p99", unit: "ms", less: true, ratio: 1},
		{key: "rate", title: "enqueued", unit: "/s"}, {key: "connections", title: "connections", unit: "/worker", less: true, plain: true},
	}
}

// fleetRows are fleets at moderate rates, with every setting its default.
func fleetRows(quick bool) []row {
	window := 15 * time.Second
	if quick {
		window = 6 * time.Second
	}
	beside := func(f fleet) []side {
		var sides []side
		for _, name := range []string{ours, river} {
			sides = append(sides, side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, name, label)
			}})
		}
		return sides
	}
	var all []row
	for _, f := range []fleet{{workers: 1, rate: 20}, {workers: 1, rate: 100}, {workers: 1, rate: 500}, {workers: 20, rate: 20}, {workers: 20, rate: 100},
		{workers: 20, rate: 500}, {workers: 50, rate: 20}, {workers: 50, rate: 100}, {workers: 50, rate: 500}} {
		f.window = window
		all = append(all, row{name: fmt.Sprintf("fleet-%d-%d", f.workers, f.rate), long: true, figures: fleetFigures(), sides: beside(f),
			title: fmt.Sprintf("%d workers with connections of their own, %d single enqueues a second, defaults", f.workers, f.rate)})
	}
	kinds := row{name: "fleet-kinds", long: true, figures: fleetFigures(), title: "one worker, 100 single enqueues a second of 1, 50 or 300 kinds of jobs in turn"}
	for _, n := range []int{1, 50, 300} {
		f := fleet{workers: 1, rate: 100, kinds: n, window: window}
		kinds.sides = append(kinds.sides, side{name: fmt.Sprintf("%d kinds", n),
			measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, ours, label)
			}})
	}
	burst := row{name: "fleet-burst", long: true, title: "10000 runs enqueued in one call for 20 idle workers, defaults", figures: []figure{
		{key: "last", title: "from the end of the call until the last worker starts one", unit: "ms", less: true, ratio: 1}, {key: "reached", title: "workers reached"},
		{key: "all", title: "until all are executed", unit: "ms", less: true}, {key: "enqueue", title: "the call", unit: "ms", less: true}}}
	for _, name := range []string{ours, river} {
		burst.sides = append(burst.sides, side{name: name,
			measure: func(ctx context.Context, b *bench, _ string) (sample, error) {
				return fleet{workers: 20}.burst(ctx, b, name, 10_000)
			}})
	}
	return append(all, kinds, burst, growingFleet(window))
}

// growingFleet is the cost of a run on more and more workers.
func growingFleet(window time.Duration) row {
	sizes := []int{1, 2, 5, 10, 20, 50, 100}
	var figures []figure
	for _, size := range sizes {
		for _, f := range []figure{{key: "each", title: "server CPU", unit: "ms/run", less: true, ratio: 1}, {key: "p50", title: "p50", unit: "ms", less: true}, {key: "p99", title: "p99", unit: "ms", less: true}} {
			f.key, f.title = fmt.Sprintf("%s-%d", f.key, size), fmt.Sprintf("%s, %d workers", f.title, size)
			figures = append(figures, f)
		}
	}
	r := row{name: "growth-fleet", long: true, figures: figures, title: "100 single enqueues a second for more and more workers, defaults"}
	for _, name := range []string{ours, river} {
		r.sides = append(r.sides, side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			all, cost := sample{}, line{name: name}
			for _, size := range sizes {
				found, err := fleet{workers: size, rate: 100, window: window}.measure(ctx, b, name, label)
				if err != nil {
					return nil, err
				}
				for _, key := range []string{"each", "p50", "p99"} {
					all[fmt.Sprintf("%s-%d", key, size)] = found[key]
				}
				cost.x, cost.y = append(cost.x, float64(size)), append(cost.y, found["each"])
				fmt.Fprintf(b.progress, "%s %d workers: %s\n", label, size, found.line(fleetFigures()))
			}
			b.keep(plot{name: r.name, title: r.title, across: "workers", along: "server CPU, ms a run", logarithmic: true}, cost)
			return all, nil
		}})
	}
	return r
}
