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
	bytes   int // of the waiting outcomes
	room    sync.Cond
	closed  bool
	signal  chan struct{}

	deferred []ended // their rows were held by somebody else; the run method's own
}

// ended is an execution with its outcome.
type ended struct {
	x       *execution
	outcome Outcome
}

// size is what an outcome adds to a statement, roughly.
func (e *ended) size() int {
	return 64 + len(e.outcome.Error) + len(e.outcome.Stack) + len(e.outcome.Result) + len(e.outcome.Log)
}

const (
	// settleLinger is the most that an outcome waits for company while other
	// handlers are still executing.
	settleLinger = 2 * time.Millisecond
	// settleBatch and settleBytes bound the outcomes of one transaction.
	settleBatch = 1000
	settleBytes = 2 << 20
	// waitingBytes bounds the outcomes that wait.
	waitingBytes = 64 << 20
	// deferredPause is the time after which a run is settled again whose row was
	// held by somebody else.
	deferredPause = 250 * time.Millisecond
)

func (s *settler) init(w *Worker) {
	s.w, s.limit, s.signal = w, 4*w.config.MaxConcurrentRuns+settleBatch, make(chan struct{}, 1)
	s.room.L = &s.mu
}

// add takes over an outcome. After close it is dropped: its worker has given
// up the run.
func (s *settler) add(x *execution, outcome Outcome) {
	s.mu.Lock()
	for (len(s.waiting) >= s.limit || s.bytes >= waitingBytes) && !s.closed {
		s.room.Wait()
	}
	if e := (ended{x, outcome}); !s.closed {
		s.waiting = append(s.waiting, e)
		s.bytes += e.size()
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
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		batch, closed := s.take()
		if len(batch) > 0 {
			if !s.settle(ctx, batch) {
				return
			}
			continue
		}
		if closed && len(s.deferred) == 0 {
			return
		}
		if len(s.deferred) > 0 {
			retry.Reset(deferredPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			again := s.deferred
			s.deferred = nil
			if !s.settle(ctx, again) {
				return
			}
		case <-s.signal:
			s.linger(ctx)
		}
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

// take returns the next batch, bounded in number and in bytes.
func (s *settler) take() (batch []ended, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(s.waiting), settleBatch) && (n == 0 || bytes+s.waiting[n].size() <= settleBytes) {
		bytes += s.waiting[n].size()
		n++
	}
	batch = s.waiting[:n:n]
	s.waiting = append([]ended(nil), s.waiting[n:]...)
	s.bytes -= bytes
	s.room.Broadcast()
	return batch, s.closed
}

// settle writes one batch and repeats it until it has verdicts, in halves when
// it fails again: what cannot be written in time, or not at all, is then written
// alone. It reports false when ctx ended first. The pauses are short against the
// time for which workers hold back from reclaiming after an outage, so that what
// a living worker hands back is there first.
func (s *settler) settle(ctx context.Context, batch []ended) bool {
	pause := 20 * time.Millisecond
	for try := 1; ; try++ {
		err := s.write(ctx, batch)
		if err == nil {
			return true
		}
		s.w.warn(ctx, "settle failed, will be tried again", err)
		if !s.w.sleep(ctx, s.w.jittered(pause)) {
			s.w.config.Logger.Warn("outcomes left unsettled, their leases run out", "runs", len(batch))
			return false
		}
		if half := len(batch) / 2; try%2 == 0 && half > 0 && !s.w.cutOff() {
			return s.settle(ctx, batch[:half:half]) && s.settle(ctx, batch[half:])
		}
		pause = min(2*pause, time.Second, s.w.config.Terms.Duration/10)
	}
}

// write makes one call of the store.
func (s *settler) write(ctx context.Context, batch []ended) error {
	claims, settlements := s.group(batch)
	bounded, cancel := context.WithTimeout(ctx, s.w.callTimeout())
	defer cancel()
	sent := s.w.config.Elapsed()
	verdicts, err := s.w.store.Settle(bounded, settlements)
	s.w.contactWrite(sent, accepted(verdicts), err)
	if err == nil {
		s.conclude(ctx, claims, settlements, verdicts, batch)
	}
	return err
}

// accepted counts the verdicts by which something was written.
func accepted(verdicts []Verdict) (n int) {
	for _, verdict := range verdicts {
		if verdict == Accepted {
			n++
		}
	}
	return n
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

// conclude counts what is settled, reports what was refused and keeps what was
// deferred. batch is in the order of the settlements.
func (s *settler) conclude(ctx context.Context, claims []*claim, settlements []Settlement, verdicts []Verdict, batch []ended) {
	i := 0
	for n, c := range claims {
		for range settlements[n].Runs {
			e := batch[i]
			e.traceSettled(verdicts[i])
			switch verdicts[i] {
			case Deferred:
				s.deferred = append(s.deferred, e)
				c.unsettled++ // it is counted out below
			case Accepted, Landed:
				if e.x.verifies() {
					e.x.logVerified(e.outcome, verdicts[i])
				}
				s.w.announceEnd(ctx, e.x.run.ID)
			case Refused:
				e.x.logger().Warn("a late write was refused: the run is no longer this claim's",
					"claim", c.id.Short(), "outcome", e.outcome.Kind.String())
			}
			i++
		}
		if c.unsettled -= len(settlements[n].Runs); c.unsettled > 0 {
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
