package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

func gapTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a claim that was given back before it came is refused":      refusedLater,
		"a caller that gives up, at whatever point, holds nothing":   givenUp,
		"an answer that is cut, at whatever point, leaves no holder": answersCut,
		"callers that give up are no outage for the others":          noOutage,
	}
}

func refusedLater(t *testing.T, f *fixture) {
	r := request("nightly", 2)
	for range 2 {
		f.release(held{name: r.Name, claim: r.Claim}, false)
		if answer, err := f.locks.Acquire(f.ctx, r); !errors.Is(err, lock.ErrRefused) {
			t.Fatalf("%+v, %v, want ErrRefused", answer, err)
		}
	}
	if renewed := f.renew(held{name: r.Name, claim: r.Claim}); renewed[0] {
		t.Error("a claim that was given back is renewed")
	}
	if records, err := f.locks.ListLocks(f.ctx, "", 10); err != nil || len(records) != 0 {
		t.Errorf("%+v, %v, want none", records, err)
	}
	f.take("nightly", 2)
	f.take("nightly", 2)
	f.refused("nightly", 2)
}

// free waits until a name's only slot can be taken. The time of a grant of the suite is so
// long that its end is not what frees it.
func (f *fixture) free(name string) {
	f.t.Helper()
	r := request(name, 1)
	for deadline := time.Now().Add(patience); ; {
		answer := f.ask(r)
		if answer.Granted {
			f.release(held{answer, name, r.Claim}, true)
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s is held, and by no caller", name)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// givenUp lets callers give up after every time that a call may take, at the first try and in
// line behind others.
func givenUp(t *testing.T, f *fixture) {
	const callers, calls, names = 6, 60, 3
	lockers := f.lockers(2, lock.Hooks{})
	terms := lock.Terms{Terms: lease.Terms{Duration: life}.WithDefaults()}
	f.together(callers, func(ctx context.Context, i int) error {
		locker := lockers[i%len(lockers)]
		step := time.Duration(1)
		for call := range calls {
			terms := terms
			terms.Wait = time.Duration(call%2) * patience
			trying, stop := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(step))))
			grant, err := locker.Acquire(trying, nth(call%names), terms)
			stop()
			switch {
			case err == nil:
				step = time.Duration(1) // shorter than a call again
				if err := locker.Release(ctx, grant); err != nil {
					return err
				}
			case errors.Is(err, lock.ErrUnavailable):
				return err
			default:
				step = min(step*3/2+time.Microsecond, 50*time.Millisecond)
			}
		}
		return nil
	})
	for i := range names {
		f.free(nth(i))
	}
	for _, l := range lockers {
		l.Close()
		if d := l.Degraded(); d > 0 {
			t.Errorf("the store was up, and counts as down for %v", d)
		}
	}
}

// cutting loses what Acquire answers, at a point that a test sets.
type cutting struct {
	lock.Locks
	at point

	late sync.WaitGroup // requests that arrive after everything else
	mu   sync.Mutex
	sent []lock.Request
}

// point is where the connection of an Acquire breaks.
type point string

// The points of an Acquire. Each cut returns to the caller immediately.
const (
	beforeSent   point = "before the request is sent"
	onTheWay     point = "while the request is on its way, which arrives after the claim was given back"
	whileDecided point = "while the store decides"
	afterGranted point = "when the answer is on its way"
)

var errCut = errors.New("connection reset")

// Acquire does what the point says.
func (c *cutting) Acquire(ctx context.Context, r lock.Request) (lock.Answer, error) {
	switch c.at {
	case "":
		return c.Locks.Acquire(ctx, r)
	case onTheWay:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, r)
	case whileDecided:
		c.late.Go(func() { _, _ = c.Locks.Acquire(context.WithoutCancel(ctx), r) })
	case afterGranted:
		_, _ = c.Locks.Acquire(ctx, r)
	}
	return lock.Answer{}, errCut
}

// arrive lets the requests arrive that were on their way.
func (c *cutting) arrive(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.sent {
		if answer, err := c.Locks.Acquire(ctx, r); answer.Granted {
			return fmt.Errorf("%s: granted to no caller: %+v, %w", c.at, answer, err)
		}
	}
	return nil
}

func answersCut(t *testing.T, f *fixture) {
	for _, at := range []point{beforeSent, onTheWay, whileDecided, afterGranted} {
		locks := &cutting{Locks: f.locks, at: at}
		locker := lock.NewLocker(locks, lock.LockerConfig{CallTimeout: patience})
		terms := lock.Terms{Terms: lease.Terms{Duration: life}.WithDefaults()}
		if grant, err := locker.TryAcquire(f.ctx, "nightly", terms); !errors.Is(err, errCut) {
			t.Fatalf("%s: %+v, %v", at, grant, err)
		}
		locks.late.Wait()
		locker.Close()
		if err := locks.arrive(f.ctx); err != nil {
			t.Error(err)
		}
		f.free("nightly")
	}
}

// noOutage lets one caller be impatient beside one that must not run without the store.
func noOutage(t *testing.T, f *fixture) {
	var counters lock.Counters
	locker := f.lockers(1, counters.Hooks())[0]
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			hasty, stop := context.WithTimeout(f.ctx, time.Duration(rand.Int64N(int64(3*time.Millisecond))))
			if grant, err := locker.Acquire(hasty, nth(i%20), lock.Terms{}); err == nil {
				_, _ = locker.Extend(hasty, grant)
				_ = locker.Release(f.ctx, grant)
			}
			_, _ = locker.Probe(hasty)
			stop()
		}
	})
	for range 200 {
		grant, err := locker.Acquire(f.ctx, "patient", lock.Terms{Policy: lock.RunLocal})
		if err != nil || grant.Local {
			t.Errorf("%+v, %v, want a grant of the store", grant, err)
			break
		}
		if err := locker.Release(f.ctx, grant); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	others.Wait()
	locker.Close()
	if counts := counters.Counts(); counts.Degraded > 0 {
		t.Errorf("an outage was counted: %+v", counts)
	}
}
