package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// While a worker claims every few milliseconds, it sends the settle of the few runs that
// have ended since together with the next claim: one transaction, one commit and one round
// trip instead of two. A claim announces when the next one follows (store.ClaimRequest.Next).
// A settle that meets no claim by then is sent on its own. So is each of the two after an
// error of both: neither keeps the other from succeeding, and a repeat of either is harmless.

const (
	// joinMost is the longest announced pause for which settles wait.
	joinMost = 12 * time.Millisecond
	// joinSlack is how much later than announced a claim may come.
	joinSlack = 4 * time.Millisecond
)

// joining holds the settles that wait for the next claim of this process. The zero value
// expects none.
type joining struct {
	mu      sync.Mutex
	until   time.Duration // on the clock of lease.Elapsed: a claim is expected until then
	waiting []*joined
}

// joined is a settle that waits for a claim, or is sent with it.
type joined struct {
	work []*settling
	sent chan struct{} // closed when the claim with which it was sent has been answered
	err  error         // of both; read it after that

	// Of a settle that frees places, what the claim has done for runs that wait for them.
	started int            // how many it has started
	handed  []store.LineID // the lines of turns it has answered: those need no wake-up
}

// expect announces that a claim follows after a pause.
func (j *joining) expect(pause time.Duration) {
	if pause <= 0 || pause > joinMost {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.until = lease.Elapsed() + pause + joinSlack
}

// wait adds a settle and returns how long it is to wait; nil: no claim is expected.
func (j *joining) wait(work []*settling) (*joined, time.Duration) {
	j.mu.Lock()
	left := j.until - lease.Elapsed()
	j.mu.Unlock()
	if left <= 0 {
		return nil, 0
	}
	return j.add(work), left
}

// add adds a settle.
func (j *joining) add(work []*settling) *joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := &joined{work: work, sent: make(chan struct{})}
	j.waiting = append(j.waiting, one)
	return one
}

// withdraw removes a settle and reports whether it was there: no claim has taken it.
func (j *joining) withdraw(one *joined) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.waiting, one)
	if i >= 0 {
		j.waiting = slices.Delete(j.waiting, i, i+1)
	}
	return i >= 0
}

// take returns the settles to send with a claim.
func (j *joining) take() []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.waiting
	j.waiting = nil
	return taken
}

// join settles together with the next claim and reports whether that has succeeded. If not,
// what was settled is not known.
func (s *Store) join(ctx context.Context, work []*settling) bool {
	if len(work) > lastFew || slices.ContainsFunc(work, func(w *settling) bool { return !w.isLastFew() }) {
		return false // more would delay the claim
	}
	one, most := s.joins.wait(work)
	return one != nil && s.joins.await(ctx, one, most)
}

// await waits until a claim has taken a settle and has been answered, or for so long for the
// former, and reports whether it has succeeded.
func (j *joining) await(ctx context.Context, one *joined, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-one.sent:
	case <-timer.C:
	case <-ctx.Done():
	}
	if j.withdraw(one) {
		return false
	}
	<-one.sent // the claim writes the verdicts until then
	return one.err == nil
}

// answer ends the waits of settles that were sent with a claim.
func answer(taken []*joined, err error) {
	for _, one := range taken {
		one.err = err
		close(one.sent)
	}
}

// sendClaim sends the claim, together with the settles that have waited for it. The statement is
// ClaimRuns, or ClaimFreeRuns, which skips runs whose rows other transactions hold.
func (s *Store) sendClaim(ctx context.Context, statement string, args []any, got *dealing) error {
	if taken := s.joins.take(); len(taken) > 0 {
		b := s.db.Hot(ctx)
		for _, one := range taken {
			for _, w := range one.work {
				w.forget()
				w.addLast(b)
			}
		}
		b.Add(statement, args...).Query(got.scan)
		err := s.db.Send(ctx, s.db.Engine, b)
		answer(taken, err)
		if conn.Code(err) == "" { // done, or the server's answer is not known
			return err
		}
	}
	b := s.db.Hot(ctx)
	if statement == queries.ClaimFreeRuns {
		b = s.db.Guarded(ctx)
	}
	b.Add(statement, args...).Query(got.scan)
	return s.db.Send(ctx, s.db.Engine, b)
}

// expectClaim lets settles wait for the claim that follows this one.
func (s *Store) expectClaim(request *store.ClaimRequest) {
	if len(request.Admissions) == 0 {
		s.joins.expect(request.Next)
	}
}
