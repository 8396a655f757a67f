package lock

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// How many calls may be under way. Others wait in this process, where their time has not
// begun and who gives up costs nothing: a flood of callers, or of callers that give up, does
// not look like an outage.
const (
	mostAsking   = 32
	mostRenewing = 8
)

// apart makes a call of the store in a goroutine, when there is a place in line, under a context
// that ends after most and not with ctx: one caller's impatience cuts no connection, and says
// nothing about the store. It returns what the call returns. When ctx ends first it returns the
// cause, and left gets what the call returns.
func apart[A any](
	ctx context.Context, l *Locker, line chan struct{}, most time.Duration, call func(context.Context) A, left func(A),
) (answer A, err error) {
	select {
	case line <- struct{}{}: // senders are served in the order in which they came
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	answers, gone := make(chan A), make(chan struct{})
	l.calls.Go(func() {
		defer func() { <-line }()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
		defer cancel()
		answer := call(bounded)
		select {
		case answers <- answer:
		case <-gone:
			left(answer)
		}
	})
	select {
	case answer = <-answers:
		return answer, nil
	case <-ctx.Done():
		close(gone)
		return answer, context.Cause(ctx)
	}
}

// Close waits until the calls of the store have ended that outlive their callers, and until
// what they were granted has been given back: twice CallTimeout at most. A program that ends
// without it may leave a lock held until its time has run out. Call it when no other method is
// called any more, and before you close the store.
func (l *Locker) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	l.calls.Wait()
}

// orphan is a claim that may have been granted and that no caller has.
type orphan struct {
	claim lease.ClaimID
	name  string
	until time.Duration // monotonic time from which on it is not given back any more
}

const (
	// mostOrphans bounds the memory of claims to give back; the oldest are dropped.
	mostOrphans = 10_000
	// lateness is by how much a request may arrive late, after a network has lost and
	// repeated it. The claim may have been granted so late, for its whole duration.
	lateness = 15 * time.Minute
	// soon is how often the wait for a store that is down is interrupted: another
	// call may have found it back.
	soon = 100 * time.Millisecond
)

// giveBack has a claim released that may have been granted, or may still be, and that no
// caller has: immediately, and repeatedly until the store answers.
func (l *Locker) giveBack(claim lease.ClaimID, name string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orphans) >= mostOrphans {
		l.orphans = l.orphans[1:]
	}
	l.orphans = append(l.orphans, orphan{claim, name, l.config.Elapsed() + d + lateness})
	if !l.giving {
		l.giving = true
		l.calls.Go(l.giveAllBack)
	}
}

// giveAllBack releases the orphans, one after another.
func (l *Locker) giveAllBack() {
	for {
		next, some := l.nextOrphan()
		if !some {
			return
		}
		if l.abandon(next.claim, next.name) {
			continue
		}
		l.mu.Lock()
		l.orphans = append(l.orphans, next)
		l.mu.Unlock()
		if !l.awaitTurn() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.giving, l.orphans = false, nil
			return
		}
	}
}

// abandon releases a claim that no caller has, and wakes a call that waits for the slot. It reports
// whether the store has answered.
func (l *Locker) abandon(claim lease.ClaimID, name string) bool {
	_, err := l.release(context.Background(), claim, name)
	if err == nil {
		l.wake(name)
	}
	return err == nil
}

// nextOrphan takes an orphan out of the list.
func (l *Locker) nextOrphan() (next orphan, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for now := l.config.Elapsed(); len(l.orphans) > 0; {
		next, l.orphans = l.orphans[0], l.orphans[1:]
		if now < next.until {
			return next, true
		}
	}
	l.giving, l.orphans = false, nil
	return orphan{}, false
}

// awaitTurn waits until the store may be asked after a failure. It reports whether it may
// before the Locker is closed.
func (l *Locker) awaitTurn() bool {
	for {
		select {
		case <-l.closing:
			return false
		case <-time.After(soon):
		}
		if l.mayAsk() {
			return true
		}
	}
}
