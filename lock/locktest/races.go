package locktest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

func raceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"of a hundred askers of three slots three are granted":       hundredAskers,
		"one claim sent concurrently by many gets one slot":          sameClaimRace,
		"slots granted at the same moment share no fence":            distinctFences,
		"askers in a loop never overlap":                             loopRace,
		"of release, renewal and take-over exactly one has its way":  takeOverRace,
		"two hundred contenders of four processes hold it in turn":   contenders,
		"two hosts with a cap of three never run more than three":    twoHosts,
		"many locks are renewed in one call beside those that leave": renewRace,
	}
}

func hundredAskers(t *testing.T, f *fixture) {
	var granted [3]atomic.Int64
	f.together(100, func(ctx context.Context, _ int) error {
		answer, err := f.locks.Acquire(ctx, request("timer", 3))
		if err == nil && answer.Granted {
			granted[answer.Slot].Add(1)
		}
		return err
	})
	// A slot that another request examined in that moment may have been skipped;
	// it is free for the next.
	missing := 0
	for slot := range granted {
		if n := granted[slot].Load(); n > 1 {
			t.Errorf("slot %d was granted %d times", slot, n)
		} else if n == 0 {
			missing++
		}
	}
	for range missing {
		f.take("timer", 3)
	}
	f.refused("timer", 3)
}

func sameClaimRace(t *testing.T, f *fixture) {
	r := request("timer", 3)
	answers := make([]lock.Answer, 16)
	f.together(len(answers), func(ctx context.Context, i int) (err error) {
		answers[i], err = f.locks.Acquire(ctx, r)
		return err
	})
	final := f.ask(r)
	for _, answer := range answers {
		if answer.Granted && (answer.Slot != final.Slot || answer.Fence != final.Fence) {
			t.Errorf("%+v and %+v for one claim", answer, final)
		}
	}
	f.take("timer", 3)
	f.take("timer", 3)
	f.refused("timer", 3)
}

// ledger counts who is inside and remembers the fences.
type ledger struct {
	mu     sync.Mutex
	inside int
	most   int
	grants int
	fence  lease.Fence
	faults []string
}

func (l *ledger) enter(limit int, fence lease.Fence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside++
	l.grants++
	l.most = max(l.most, l.inside)
	if l.inside > limit {
		l.faults = append(l.faults, fmt.Sprintf("%d inside", l.inside))
	}
	if limit == 1 && fence <= l.fence {
		l.faults = append(l.faults, fmt.Sprintf("fence %d after %d", fence, l.fence))
	}
	l.fence = max(l.fence, fence)
}

func (l *ledger) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
}

func (l *ledger) check(t *testing.T, grants int) {
	t.Helper()
	for _, fault := range l.faults {
		t.Error(fault)
	}
	if grants > 0 && l.grants != grants {
		t.Errorf("%d grants, want %d", l.grants, grants)
	}
}

func loopRace(t *testing.T, f *fixture) {
	var book ledger
	f.together(8, func(ctx context.Context, _ int) error {
		for range 30 {
			r := request("nightly", 1)
			answer, err := f.locks.Acquire(ctx, r)
			if err != nil {
				return err
			}
			if !answer.Granted {
				continue
			}
			book.enter(1, answer.Fence)
			book.leave()
			if released, err := f.locks.Release(ctx, r.Name, r.Claim); err != nil || !released {
				return fmt.Errorf("released %v: %w", released, err)
			}
		}
		return nil
	})
	book.check(t, 0)
	if book.grants == 0 {
		t.Error("nothing was granted")
	}
}

func takeOverRace(t *testing.T, f *fixture) {
	const n = 20
	old := make([]held, n)
	for i := range old {
		old[i] = f.take(nth(i), 1)
	}
	f.advance(life + time.Second)
	renewed, released, taken := make([]bool, n), make([]bool, n), make([]lock.Answer, n)
	f.together(3*n, func(ctx context.Context, job int) (err error) {
		switch i := job / 3; job % 3 {
		case 0:
			var claims []lease.ClaimID
			claims, err = f.locks.Renew(ctx, []lease.ClaimID{old[i].claim}, life)
			renewed[i] = len(claims) == 1
		case 1:
			released[i], err = f.locks.Release(ctx, old[i].name, old[i].claim)
		default:
			taken[i], err = f.locks.Acquire(ctx, request(old[i].name, 1))
		}
		return err
	})
	for i := range old {
		if taken[i].Granted && taken[i].Fence <= old[i].Fence {
			t.Errorf("%s: taken over with fence %d after %d", old[i].name, taken[i].Fence, old[i].Fence)
		}
		if again := f.renew(old[i])[0]; again && (taken[i].Granted || released[i]) {
			t.Errorf("%s: the old claim is renewed beside its successor or its own release", old[i].name)
		}
	}
}

func renewRace(t *testing.T, f *fixture) {
	const n = 30
	grants := make([]held, n)
	for i := range grants {
		grants[i] = f.take(nth(i), 1)
	}
	f.together(8, func(ctx context.Context, i int) error {
		if i == 0 {
			for _, h := range grants[:n/2] {
				if released, err := f.locks.Release(ctx, h.name, h.claim); err != nil || !released {
					return fmt.Errorf("released %v: %w", released, err)
				}
			}
			return nil
		}
		claims := make([]lease.ClaimID, n)
		for i, h := range grants {
			claims[i] = h.claim
		}
		for range 5 {
			renewed, err := f.locks.Renew(ctx, claims, life)
			if err != nil {
				return err
			}
			if len(renewed) < n/2 {
				return fmt.Errorf("%d of %d were renewed", len(renewed), n)
			}
		}
		return nil
	})
	for i, isHeld := range f.renew(grants...) {
		if isHeld != (i >= n/2) {
			t.Errorf("lock %d is held: %v", i, isHeld)
		}
	}
}

// lockers stand for processes on different machines.
func (f *fixture) lockers(n int, hooks lock.Hooks) []*lock.Locker {
	lockers := make([]*lock.Locker, n)
	for i := range lockers {
		lockers[i] = lock.NewLocker(f.locks, lock.LockerConfig{
			Owner: fmt.Sprintf("host-%d", i), Hooks: hooks, CallTimeout: patience,
		})
	}
	return lockers
}

func contenders(t *testing.T, f *fixture) {
	const all = 200
	var book ledger
	var counters lock.Counters
	lockers := f.lockers(4, counters.Hooks())
	terms := lock.Terms{Wait: patience}
	f.together(all, func(ctx context.Context, i int) error {
		locker := lockers[i%len(lockers)]
		grant, err := locker.Acquire(ctx, "nightly", terms)
		if err != nil {
			return err
		}
		book.enter(1, grant.Fence)
		book.leave()
		return locker.Release(ctx, grant)
	})
	book.check(t, all)
	// Each grant costs its own question and its release; the rest is waiting.
	counts := counters.Counts()
	if asked := counts.Calls - 2*all; asked > 10*all {
		t.Errorf("%d questions beside %d grants: that is polling", asked, all)
	}
}

func twoHosts(t *testing.T, f *fixture) {
	var book ledger
	hosts := f.lockers(2, lock.Hooks{})
	f.together(12, func(ctx context.Context, i int) error {
		for range 5 {
			grant, err := hosts[i%2].Acquire(ctx, "timer", lock.Terms{Slots: 3, Wait: patience})
			if err != nil {
				return err
			}
			book.enter(3, grant.Fence)
			<-time.After(time.Millisecond)
			book.leave()
			if err := hosts[i%2].Release(ctx, grant); err != nil {
				return err
			}
		}
		return nil
	})
	book.check(t, 60)
	if book.most < 2 {
		t.Errorf("at most %d ran concurrently: slots are not used", book.most)
	}
}
