package stepping

import (
	"context"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// together makes one call of the store for many callers. One is under way at a time, and takes all
// that has come during the one before: a caller alone waits for none, and many share a
// transaction. The caller who comes first calls for all; then the first of those that have come
// meanwhile does.
type together[T, V any] struct {
	most   int                                             // callers of one call
	bound  int                                             // of the sum of their weights
	weight func(*T) int                                    // what one adds to the call
	key    func(*T) any                                    // no two of one call have the same; nil: they may
	call   func(ctx context.Context, all []T) ([]V, error) // answers in order
	begin  func() (context.Context, context.CancelFunc)    // bounds the call

	mu      sync.Mutex
	waiting []*sharer[T, V]
	calling bool
}

// sharer is one caller.
type sharer[T, V any] struct {
	ask    T
	leads  chan struct{} // closed when it is to call
	called chan struct{} // closed when what follows is set
	answer V
	err    error
	among  int // how many have shared the call
}

// do has a call made for the caller, with those of others.
func (g *together[T, V]) do(ask T) *sharer[T, V] {
	own := &sharer[T, V]{ask: ask, leads: make(chan struct{}), called: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, own)
	first := !g.calling
	g.calling = true
	g.mu.Unlock()
	if !first {
		select {
		case <-own.called:
			return own
		case <-own.leads:
		}
	}
	batch := g.take()
	g.make(batch)
	g.mu.Lock()
	g.calling = len(g.waiting) > 0
	if g.calling {
		close(g.waiting[0].leads)
	}
	g.mu.Unlock()
	for _, s := range batch {
		close(s.called)
	}
	return own
}

// insist makes a call as Execution.Insist does, first together with others. What the store refuses
// together is tried alone immediately, as the refusal may be another's; what fails is tried alone
// from then on, so that one is in no other's way.
func (g *together[T, V]) insist(ctx context.Context, x Execution, ask T) (answer V, err error) {
	shared := true
	err = x.Insist(ctx, func(ctx context.Context) error {
		if shared {
			shared = false
			own := g.do(ask)
			answer = own.answer
			if own.among == 1 || !store.IsRefusal(own.err) {
				return own.err
			}
		}
		answers, err := g.call(ctx, []T{ask})
		if err == nil {
			answer = answers[0]
		}
		return err
	})
	return answer, err
}

// take takes what one call may hold. The caller who leads is the first.
func (g *together[T, V]) take() (batch []*sharer[T, V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var left []*sharer[T, V]
	taken, sum := map[any]bool{}, 0
	for _, s := range g.waiting {
		weight := g.weight(&s.ask)
		if len(batch) > 0 && (len(batch) == g.most || sum+weight > g.bound || g.key != nil && taken[g.key(&s.ask)]) {
			left = append(left, s)
			continue
		}
		if g.key != nil {
			taken[g.key(&s.ask)] = true
		}
		sum += weight
		batch = append(batch, s)
	}
	g.waiting = left
	return batch
}

// make makes one call. It ends with no caller's context, as others wait for it too.
func (g *together[T, V]) make(batch []*sharer[T, V]) {
	all := make([]T, len(batch))
	for i, s := range batch {
		all[i] = s.ask
	}
	ctx, cancel := g.begin()
	defer cancel()
	answers, err := g.call(ctx, all)
	for i, s := range batch {
		s.err, s.among = err, len(batch)
		if err == nil {
			s.answer = answers[i]
		}
	}
}
