package main

import (
	"context"
	"fmt"
	"time"
)

// enqueue measures one enqueuer that stores runs, batch by batch, while no worker
// works.
func (b *bench) enqueue(ctx context.Context, s spec, on engine, warm bool, label string) (sample, error) {
	w, err := b.place(ctx, s.Contender, on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if warm { // connections, plans, and a table that is not empty
		if err := b.load(ctx, w, spec{Contender: s.Contender}, 2000); err != nil {
			return nil, err
		}
		if err := w.vacuum(ctx); err != nil {
			return nil, err
		}
	}
	if err := w.forget(ctx); err != nil {
		return nil, err
	}
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	s.Role, s.Target, s.Counters, s.Profile = enqueuing, w.target, shared.path, b.profile(label)
	c, err := spawn(s)
	if err != nil {
		return nil, err
	}
	defer c.end()
	before, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.begin(); err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return shared.at(enqueuedSlot).Load() >= int64(s.Total) }, 5*time.Minute); err != nil {
		return nil, fmt.Errorf("%s: enqueue: %w", s.Contender, err)
	}
	took := time.Since(began)
	after, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	u, err := c.report()
	if err != nil {
		return nil, err
	}
	b.noted(ctx, w, label)
	return drained(s.Total, took, time.Duration(u.CPU), before, after).without("dead", "hot", "statements"), nil
}

// without takes figures out that were not measured.
func (s sample) without(keys ...string) sample {
	for _, key := range keys {
		delete(s, key)
	}
	return s
}

// both measures enqueuing and working concurrently, from an empty database that was
// never analyzed, for a time.
func (b *bench) both(ctx context.Context, work, enqueue spec, on engine, window time.Duration) (sample, error) {
	w, err := b.place(ctx, work.Contender, on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	work.Role, work.Target, work.Counters = working, w.target, shared.path
	enqueue.Role, enqueue.Target, enqueue.Counters = enqueuing, w.target, shared.path
	worker, err := spawn(work)
	if err != nil {
		return nil, err
	}
	defer worker.end()
	source, err := spawn(enqueue)
	if err != nil {
		return nil, err
	}
	defer source.end()
	before, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for _, c := range []*child{worker, source} {
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(window):
	}
	took, handled := time.Since(began), int(shared.handled())
	after, err := w.fast(ctx)
	if err != nil || handled == 0 {
		return nil, fmt.Errorf("%s worked %d runs: %w", work.Contender, handled, err)
	}
	source.end()
	worker.end()
	c, err := contenderOf(work.Contender)
	if err != nil {
		return nil, err
	}
	if found, err := c.finished(ctx, w); err != nil || found < handled {
		return nil, fmt.Errorf("%s: %d runs were executed and %d are finished in the store: %w", work.Contender, handled, found, err)
	}
	return drained(handled, took, 0, before, after).without("dead", "hot", "statements", "go"), nil
}

// until waits for a condition.
func until(ctx context.Context, holds func() bool, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return nil
}
