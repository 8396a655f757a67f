package settling

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
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

// ExpectNext lets settles wait for the claim that follows after a pause.
func (s *Settler) ExpectNext(pause time.Duration) { s.joins.expect(pause) }

// join settles together with the next claim and reports whether that has succeeded. If not,
// what was settled is not known.
func (s *Settler) join(ctx context.Context, work []*settling) bool {
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

// Taken are settles that are sent with a claim. Each waits until it is answered.
type Taken struct {
	joined []*joined
	whole  *settling // the settlement that one statement makes whole; nil: there is none
}

// TakeJoined takes the settles of plain runs that wait for a claim.
func (s *Settler) TakeJoined() *Taken { return &Taken{joined: s.joins.take()} }

// TakeHandOns takes the settles whose places are to be handed on.
func (s *Settler) TakeHandOns() *Taken { return &Taken{joined: s.handing.settles.take()} }

// None reports whether no settle has waited.
func (t *Taken) None() bool { return len(t.joined) == 0 }

// AddLast adds the statements of settles that end the last few runs of their claims.
func (t *Taken) AddLast(b *conn.Batch) {
	for _, one := range t.joined {
		for _, w := range one.work {
			w.forget()
			w.addLast(b)
		}
	}
}

// AddAll adds the statements of any settles, in the order of their claims.
func (t *Taken) AddAll(b *conn.Batch) {
	var work []*settling
	for _, one := range t.joined {
		work = append(work, one.work...)
	}
	slices.SortStableFunc(work, func(a, b *settling) int { return bytes.Compare(a.Claim[:], b.Claim[:]) })
	t.whole = addSettles(b, work)
}

// Answer ends the waits, after the settles were sent with a claim that has started so many runs
// in the places that they free, and has answered these lines of turns.
func (t *Taken) Answer(err error, started int, handed []store.LineID) {
	if err == nil && t.whole.isUnheld() {
		err = errUnheld
	}
	for _, one := range t.joined {
		one.started, one.handed, one.err = started, handed, err
		close(one.sent)
	}
}
