package sqlite

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// enqueueBatcher puts together the enqueues that wait to be written at the same
// time, so that they share one transaction and one flush to the disk. The
// first caller leads: it writes for all who have joined by the time it is let
// in. No caller waits for company. Proved by TestEnqueuesShareATransaction.
type enqueueBatcher struct {
	mu   sync.Mutex // guards the field below, and all of a batch that is not shut
	open *batch     // the one to join, or nil
}

// batch is what will be written together.
type batch struct {
	calls []*call
	size  int // runs of the calls
	shut  bool
	done  chan struct{}
	err   error // fixed once done is closed
}

// call is one Enqueue. Its receipts belong to the leader until the batch is done.
type call struct {
	runs     []store.NewRun
	receipts []store.Receipt
	holder   store.RunID // the run whose handler stores them; the zero ID: they come from outside
}

// batchSize is how many runs a batch has when no caller may join any more, so
// that others come to write in between.
const batchSize = 1000

// join adds a call to the open batch or begins one and leads it.
func (g *enqueueBatcher) join(c *call) (b *batch, leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil || g.open.size >= batchSize {
		g.open, leads = &batch{done: make(chan struct{})}, true
	}
	g.open.calls = append(g.open.calls, c)
	g.open.size += len(c.runs)
	return g.open, leads
}

// shut lets no caller join or leave any more.
func (g *enqueueBatcher) shut(b *batch) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	b.shut = true
	if g.open == b {
		g.open = nil
	}
	return b.calls
}

// leave takes a call back, unless it is being written.
func (g *enqueueBatcher) leave(b *batch, c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.shut {
		return false
	}
	i := slices.Index(b.calls, c)
	b.calls = slices.Delete(b.calls, i, i+1)
	b.size -= len(c.runs)
	return true
}

// errLeaderless says that the leader gave up before it wrote anything.
var errLeaderless = errors.New("the caller that led the batch gave up")

// enqueue writes a call together with those that come at the same time.
func (s *Store) enqueue(ctx context.Context, c *call) error {
	for {
		b, leads := s.batcher.join(c)
		if leads {
			return s.lead(ctx, b)
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			if s.batcher.leave(b, c) {
				return ctx.Err()
			}
			<-b.done // in a moment; until then the leader reads the runs
		}
		if !errors.Is(b.err, errLeaderless) {
			return b.err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// lead writes a batch. The end of its own context is not the others' concern.
func (s *Store) lead(ctx context.Context, b *batch) error {
	b.err = errLeaderless // unless something better is known
	defer close(b.done)
	defer s.batcher.shut(b)
	fresh := newLanes()
	err := s.write(ctx, enqueues, func(ctx context.Context, c *change) error {
		for _, call := range s.batcher.shut(b) {
			if err := s.store(ctx, c, fresh, call); err != nil {
				return err
			}
		}
		return nil
	})
	if ctx.Err() == nil || err == nil {
		b.err = err
	}
	if err == nil {
		s.lanes.add(fresh)
		s.hint()
	}
	return err
}
