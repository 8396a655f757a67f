package operate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// RunList is a page of runs, newest first. A list does not read attempts.
type RunList struct {
	Runs []store.Record `json:"runs"`
	Next *store.RunID   `json:"next"` // the Before of the next page; nil: this was the last one
}

// RunCounts are the numbers of runs by state, zeros included.
type RunCounts struct {
	Counts map[store.State]store.Count `json:"counts"`
}

const (
	// listFor is how long a list continues searching where few runs match.
	listFor = 3 * time.Second
	// countsLimit bounds a reading of LastCounts.
	countsLimit = 10 * time.Second
	// defaultPage is how many runs a list has when the filter does not say.
	defaultPage = 50
)

// Run returns one run with its attempts, or ErrNotFound.
func (o *Operator) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	record, err := o.store.Run(ctx, id)
	record.Tags, record.Attempts = whole(record.Tags), whole(record.Attempts)
	return record, err
}

// Runs lists the runs that match a filter. A store examines a bounded number of
// runs for one answer; Runs asks again until the page is full. Where few runs
// match it stops after about three seconds, with a page that may be shorter, or
// empty, and a Next.
func (o *Operator) Runs(ctx context.Context, filter store.Filter) (RunList, error) {
	if filter.Limit == 0 {
		filter.Limit = defaultPage
	}
	list := RunList{Runs: []store.Record{}}
	began, want := o.config.Now(), filter.Limit
	for {
		page, err := o.store.Runs(ctx, filter)
		if err != nil {
			return list, err
		}
		for _, run := range page.Runs {
			run.Tags = whole(run.Tags)
			list.Runs = append(list.Runs, run)
		}
		if page.Next == (store.RunID{}) {
			list.Next = nil
			return list, nil
		}
		list.Next = &page.Next
		if len(list.Runs) >= want || o.config.Now().Sub(began) > listFor {
			return list, nil
		}
		filter.Before, filter.Limit = page.Next, want-len(list.Runs)
	}
}

// Counts counts the runs by state. Each number says whether it is exact, a lower
// bound or an estimate.
func (o *Operator) Counts(ctx context.Context) (RunCounts, error) {
	counts, err := o.store.Counts(ctx)
	return RunCounts{counts}, err
}

// counting keeps the last numbers of runs by state, for who must not wait for them.
type counting struct {
	mu      sync.Mutex
	reading chan struct{} // closed when the read that is under way has ended; nil: none is
	last    RunCounts
	next    time.Time // when they are read again, on the monotonic clock
	under   sync.WaitGroup
}

const (
	countsWithin = 40 * time.Millisecond // how long LastCounts waits
	countsFor    = time.Second           // how long numbers are shown before they are read again, at least
	countsShare  = 20                    // and how many times as long as their reading took
)

// LastCounts returns the numbers of Counts as they were read last, of a small store
// immediately before. It waits for about 40 ms at most: a large store is counted aside, and
// until that has ended for the first time there are no numbers. Counting takes at most a
// twentieth of the time. Close waits for it.
func (o *Operator) LastCounts(ctx context.Context) RunCounts {
	c := &o.counting
	c.mu.Lock()
	if c.reading == nil && !time.Now().Before(c.next) {
		c.reading = make(chan struct{})
		c.under.Go(func() { o.readCounts(context.WithoutCancel(ctx)) })
	}
	reading := c.reading
	c.mu.Unlock()
	if reading != nil {
		select {
		case <-reading:
		case <-time.After(countsWithin):
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// readCounts counts the runs, and keeps the numbers when the store has answered.
func (o *Operator) readCounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countsLimit)
	defer cancel()
	began := time.Now()
	counts, err := o.Counts(ctx)
	c := &o.counting
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = counts
	}
	c.next = time.Now().Add(max(countsFor, countsShare*time.Since(began)))
	close(c.reading)
	c.reading = nil
}

// CountMatching counts the runs that pass a filter, in the states that it asks
// for. The cursor and the limit of the filter have no effect.
func (o *Operator) CountMatching(ctx context.Context, filter store.Filter) (RunCounts, error) {
	if !filter.Narrow() {
		counted, err := o.Counts(ctx)
		maps.DeleteFunc(counted.Counts, func(state store.State, _ store.Count) bool { return !slices.Contains(filter.Wanted(), state) })
		return counted, err
	}
	counts, err := o.store.CountMatching(ctx, filter)
	return RunCounts{counts}, err
}

// Wait waits until a run has ended, or until ctx ends, and returns the run with
// its attempts.
func (o *Operator) Wait(ctx context.Context, id store.RunID) (store.Record, error) {
	if _, err := o.client.Wait(ctx, id); err != nil {
		return store.Record{}, err
	}
	return o.Run(context.WithoutCancel(ctx), id)
}
