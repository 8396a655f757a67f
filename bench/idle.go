package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// latency enqueues one run each 20 ms for an idle worker in another process and
// measures from before the call until its handler begins.
func (b *bench) latency(ctx context.Context, s spec, on engine, n int) (sample, error) {
	w, err := b.place(ctx, s.Contender, on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	c, err := contenderOf(s.Contender)
	if err != nil {
		return nil, err
	}
	s.Role, s.Target, s.Counters, s.Latency = working, w.target, shared.path, true
	worker, err := spawn(s)
	if err != nil {
		return nil, err
	}
	defer worker.end()
	if err := worker.begin(); err != nil {
		return nil, err
	}
	e, err := c.enqueuer(ctx, spec{Contender: s.Contender, Target: w.target, Cooldown: s.Cooldown})
	if err != nil {
		return nil, err
	}
	defer e.close()
	const warm = 50
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for range warm + n {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticks.C:
		}
		if err := e.enqueue(ctx, []int64{time.Now().UnixNano()}); err != nil {
			return nil, err
		}
	}
	if err := until(ctx, func() bool { return shared.handled() >= warm+int64(n) }, 30*time.Second); err != nil {
		return nil, fmt.Errorf("%s: %d of %d runs began: %w", s.Contender, shared.handled(), warm+n, err)
	}
	u, err := worker.report()
	if err != nil {
		return nil, err
	}
	waits := u.Samples[warm:]
	slices.Sort(waits)
	return sample{"p50": percentile(waits, 0.50), "p99": percentile(waits, 0.99), "max": waits[len(waits)-1]}, nil
}

func percentile(sorted []float64, p float64) float64 {
	return sorted[min(len(sorted)-1, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// idle measures what a worker costs that has nothing to do.
func (b *bench) idle(ctx context.Context, s spec, on engine, window time.Duration, label string) (sample, error) {
	w, err := b.place(ctx, s.Contender, on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.sweptAlready(ctx, s.Contender); err != nil {
		return nil, err
	}
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	s.Role, s.Target, s.Counters = working, w.target, shared.path
	worker, err := spawn(s)
	if err != nil {
		return nil, err
	}
	defer worker.end()
	if err := worker.begin(); err != nil {
		return nil, err
	}
	measure := func(wait time.Duration) (seen spent, err error) {
		select {
		case <-ctx.Done():
			return seen, ctx.Err()
		case <-time.After(wait):
		}
		return seen, w.slow(ctx, &seen)
	}
	if _, err := measure(5 * time.Second); err != nil { // the start is over
		return nil, err
	}
	if err := w.forget(ctx); err != nil {
		return nil, err
	}
	after, err := measure(window)
	if err != nil {
		return nil, err
	}
	b.noted(ctx, w, label)
	u, err := worker.report()
	if err != nil {
		return nil, err
	}
	found := sample{"memory": float64(u.Memory) / (1 << 20)}
	if w.server == nil || !w.server.statements {
		return found, nil
	}
	connections, err := w.count(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+loadName+"'")
	if err != nil {
		return nil, err
	}
	found["connections"] = float64(connections)
	found["asked"] = after.statements / window.Seconds()
	heads, err := w.headsOfBatches(ctx)
	found["trips"] = (after.statements - heads) / window.Seconds()
	return found, err
}

// sweptAlready notes that the hourly pass of retention has been made: once an
// hour it is some fifteen statements more.
func (w *watch) sweptAlready(ctx context.Context, contenderName string) error {
	if contenderName != ours || w.conn == nil {
		return nil
	}
	_, err := w.conn.Exec(ctx, "INSERT INTO durable.sweep (began_at) VALUES (now())")
	return err
}

// headsOfBatches counts the statements that only set up the one they travel
// with, and so are no round trips of their own.
func (w *watch) headsOfBatches(ctx context.Context) (n float64, err error) {
	err = w.maintenance(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT coalesce(sum(calls), 0)::float8 "+fromStatements+" AND query ~ 'set_config' AND query !~ 'pg_notify'",
			w.conn.Config().Database).Scan(&n)
	})
	return n, err
}
