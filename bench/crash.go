package main

import (
	"context"
	"fmt"
	"time"
)

// crash kills a process that holds n runs, and measures until another one has
// begun them again.
func (b *bench) crash(ctx context.Context, n int, duration time.Duration) (sample, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := b.load(ctx, w, spec{Contender: ours}, n); err != nil {
		return nil, err
	}
	shared, err := newCounters(b.dir)
	if err != nil {
		return nil, err
	}
	defer shared.close()
	s := spec{Contender: ours, Role: working, Target: w.target, Counters: shared.path, Concurrency: n, Lease: duration}
	first, second := s, s
	first.Hang, second.Slot = true, 1
	victim, err := spawn(first)
	if err != nil {
		return nil, err
	}
	defer victim.end()
	if err := victim.begin(); err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return shared.at(0).Load() >= int64(n) }, stall); err != nil {
		return nil, fmt.Errorf("%d of %d runs in hand: %w", shared.at(0).Load(), n, err)
	}
	heir, err := spawn(second)
	if err != nil {
		return nil, err
	}
	defer heir.end()
	if err := heir.begin(); err != nil {
		return nil, err
	}
	select { // it is at rest, and its own start is over
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(3 * time.Second):
	}
	killed := time.Now()
	if err := victim.process.Process.Kill(); err != nil {
		return nil, err
	}
	after := func(least int64) (float64, error) {
		err := until(ctx, func() bool { return shared.at(1).Load() >= least }, stall)
		return time.Since(killed).Seconds(), err
	}
	begun, err := after(1)
	if err != nil {
		return nil, err
	}
	all, err := after(int64(n))
	return sample{"first": begun, "last": all}, err
}

func crashRow(n int) row {
	killing := func(name string, duration time.Duration) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.crash(ctx, n, duration) }}
	}
	return row{
		name: "crash", long: true,
		title: fmt.Sprintf("kill -9 of a process with %d runs in hand until another has begun them (River's defaults, not measured: an hour and more)", n),
		figures: []figure{
			{key: "first", title: "the first", unit: "s", less: true, bound: 3, plain: true}, {key: "last", title: "the last", unit: "s", less: true, bound: 3, plain: true},
		},
		sides: []side{killing("lease of 2 s", 2*time.Second), killing("lease of 30 s, the default", 0)},
	}
}
