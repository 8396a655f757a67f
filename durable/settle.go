package durable

import (
	"context"
	"slices"
	"sync"
	"time"
)

// settler gathers the outcomes of executions and writes them together. It
// repeats a write whose outcome is unknown until the store answers: the claim
// id makes a repeat harmless and a late one refused.
type settler struct {
	w     *Worker
	limit int // outcomes that may wait; beyond it a handler's goroutine, and so its slot, waits

	mu      sync.Mutex
	waiting []ended
	room    sync.Cond
	closed  bool
	signal  chan struct{}
}

// ended is an execution with its outcome.
type ended struct {
	x       *execution
	outcome Outcome
}

const (
	// settleLinger is the most that an outcome waits for company while other
	// handlers are still executing.
	settleLinger = 2 * time.Millisecond
	// settleBatch bounds the outcomes of one transaction.
	settleBatch = 1000
)

func (s *settler) init(w *Worker) {
	s.w, s.limit, s.signal = w, 4*w.config.MaxConcurrentRuns+settleBatch, make(chan struct{}, 1)
	s.room.L = &s.mu
}

// add takes over an outcome. After close it is dropped: its worker has given
// up the run.
func (s *settler) add(x *execution, outcome Outcome) {
	s.mu.Lock()
	for len(s.waiting) >= s.limit && !s.closed {
		s.room.Wait()
	}
	if !s.closed {
		s.waiting = append(s.waiting, ended{x, outcome})
	}
	first := len(s.waiting) == 1 || len(s.waiting) == settleBatch
	s.mu.Unlock()
	if first {
		s.poke()
	}
}

// close makes run return when everything added so far is settled.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.room.Broadcast()
	s.mu.Unlock()
	s.poke()
}

func (s *settler) poke() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// run settles until close, or until ctx ends; what is not settled then is left
// to the lease.
func (s *settler) run(ctx context.Context) {
	for {
		batch, closed := s.take()
		if len(batch) > 0 {
			if !s.settle(ctx, batch) {
				return
			}
			continue
		}
		if closed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.signal:
		}
		s.linger(ctx)
	}
}

// linger waits for company as long as handlers are executing that may bring it.
func (s *settler) linger(ctx context.Context) {
	s.mu.Lock()
	alone := len(s.waiting) < settleBatch && !s.closed
	s.mu.Unlock()
	if alone && s.w.active.len() > 0 {
		s.w.sleep(ctx, settleLinger)
	}
}

func (s *settler) take() (batch []ended, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), settleBatch)
	batch = s.waiting[:n:n]
	s.waiting = append([]ended(nil), s.waiting[n:]...)
	s.room.Broadcast()
	return batch, s.closed
}

// settle writes one batch and repeats it until it has verdicts. It reports
// false when ctx ended first. The pauses are short against the time for which
// workers hold back from reclaiming after an outage, so that what a living
// worker hands back is there first.
func (s *settler) settle(ctx context.Context, batch []ended) bool {
	claims, settlements := s.group(batch)
	pause := 20 * time.Millisecond
	for {
		bounded, cancel := context.WithTimeout(ctx, s.w.callTimeout())
		verdicts, err := s.w.store.Settle(bounded, settlements)
		cancel()
		s.w.contact(err)
		if err == nil {
			s.conclude(claims, settlements, verdicts, batch)
			return true
		}
		s.w.warn(ctx, "settle failed, will be tried again", err)
		if !s.w.sleep(ctx, s.w.jittered(pause)) {
			s.w.config.Logger.Warn("outcomes left unsettled, their leases run out", "runs", len(batch))
			return false
		}
		pause = min(2*pause, time.Second, s.w.config.Terms.Duration/10)
	}
}

// group orders a batch by claim and turns it into settlements.
func (s *settler) group(batch []ended) ([]*claim, []Settlement) {
	position := make(map[*claim]int, 4)
	for _, e := range batch {
		if _, known := position[e.x.claim]; !known {
			position[e.x.claim] = len(position)
		}
	}
	if len(position) > 1 {
		slices.SortStableFunc(batch, func(a, b ended) int { return position[a.x.claim] - position[b.x.claim] })
	}
	claims := make([]*claim, 0, len(position))
	settlements := make([]Settlement, 0, len(position))
	settled := make([]Settled, len(batch))
	start := 0
	for i, e := range batch {
		settled[i] = Settled{ID: e.x.run.ID, Outcome: e.outcome}
		if i+1 < len(batch) && batch[i+1].x.claim == e.x.claim {
			continue
		}
		c := e.x.claim
		claims = append(claims, c)
		settlements = append(settlements, Settlement{Claim: c.id, Worker: s.w.id, Runs: settled[start : i+1 : i+1], Last: c.unsettled == i+1-start})
		start = i + 1
	}
	return claims, settlements
}

// conclude counts what is settled and reports what was refused. batch is in
// the order of the settlements.
func (s *settler) conclude(claims []*claim, settlements []Settlement, verdicts []Verdict, batch []ended) {
	for i, verdict := range verdicts {
		if verdict == Refused {
			batch[i].x.logger().Warn("a late write was refused: the run is no longer this claim's",
				"claim", batch[i].x.claim.id.Short(), "outcome", batch[i].outcome.Kind.String())
		}
	}
	for i, c := range claims {
		if c.unsettled -= len(settlements[i].Runs); c.unsettled > 0 {
			continue
		}
		c.watch()
		c.hold.Release()
		s.w.active.remove(c)
		s.w.aloneEnded(c)
	}
}

// aloneEnded lets a worker claim again when its isolated run is settled or
// given up.
func (w *Worker) aloneEnded(c *claim) {
	if c.alone && w.claimer.aloneActive.Swap(false) {
		w.poller.Wake()
	}
}
