// Package locktest is the contract of lock.Locks as a test suite.
//
// The author of a store of locks calls [TestLocks] from a test of the store.
// The suite uses plain testing and nothing else, sleeps for nothing, and runs
// in parallel; every test gets a store of its own.
package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// Backend is how the suite gets stores of one engine.
type Backend struct {
	// New returns an empty store that shares nothing with any other. It closes
	// the store by t.Cleanup. It is called from parallel tests.
	New func(t *testing.T) lock.Locks
	// Advance makes d pass on the clock of a store that New returned: by moving
	// an injected clock ahead, or by moving every stored time back. No other
	// call of that store is under way. In between, the store's clock may run by
	// itself or stand still.
	Advance func(t *testing.T, locks lock.Locks, d time.Duration)
	// Deaf: HearFreed receives no release, as behind a transaction pooler.
	Deaf bool
}

// TestLocks runs the whole contract suite against a backend.
func TestLocks(t *testing.T, backend Backend) {
	groups := map[string]map[string]func(*testing.T, *fixture){
		"grant": grantTests(),
		"slots": slotTests(),
		"race":  raceTests(),
		"force": forceTests(),
		"waits": waitTests(backend.Deaf),
		"gaps":  gapTests(),
	}
	for group, tests := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for sentence, test := range tests {
				t.Run(sentence, func(t *testing.T) {
					t.Parallel()
					test(t, &fixture{t: t, ctx: t.Context(), backend: backend, locks: backend.New(t)})
				})
			}
		})
	}
}

// life is how long a grant of the suite lasts unless it says otherwise: so long
// that the time a test takes means nothing.
const life = time.Hour

// patience bounds how long a test waits for something that should happen
// immediately. Only a store that fails makes it wait so long.
const patience = 2 * time.Minute

// fixture is one store under test, with the calls most tests make.
type fixture struct {
	t       *testing.T
	ctx     context.Context
	backend Backend
	locks   lock.Locks
}

// held is a grant as the suite remembers it.
type held struct {
	lock.Answer
	name  string
	claim lease.ClaimID
}

func (f *fixture) advance(d time.Duration) {
	f.t.Helper()
	f.backend.Advance(f.t, f.locks, d)
}

func request(name string, slots int) lock.Request {
	return lock.Request{Name: name, Slots: slots, Claim: lease.NewClaimID(), Owner: "owner of " + name[:min(len(name), 9)], Duration: life}
}

func (f *fixture) ask(r lock.Request) lock.Answer {
	f.t.Helper()
	answer, err := f.locks.Acquire(f.ctx, r)
	if err != nil {
		f.t.Fatalf("Acquire %q: %v", r.Name, err)
	}
	return answer
}

// take must be granted a slot.
func (f *fixture) take(name string, slots int) held {
	f.t.Helper()
	r := request(name, slots)
	answer := f.ask(r)
	if !answer.Granted || answer.Fence <= 0 || answer.Slot < 0 || answer.Slot >= slots {
		f.t.Fatalf("lock %q with cap %d: %+v, want a grant", name, slots, answer)
	}
	return held{answer, name, r.Claim}
}

// refused must not be granted a slot.
func (f *fixture) refused(name string, slots int) {
	f.t.Helper()
	answer := f.ask(request(name, slots))
	if answer.Granted || answer.FreeIn <= 0 || answer.FreeIn > life {
		f.t.Fatalf("lock %q with cap %d: %+v, want a refusal and when a slot expires", name, slots, answer)
	}
}

func (f *fixture) release(h held, want bool) {
	f.t.Helper()
	released, err := f.locks.Release(f.ctx, h.name, h.claim)
	if err != nil || released != want {
		f.t.Fatalf("release of %q slot %d: %v, %v, want %v", h.name, h.Slot, released, err, want)
	}
}

// renew returns which of the grants were renewed.
func (f *fixture) renew(grants ...held) []bool {
	f.t.Helper()
	claims := make([]lease.ClaimID, len(grants))
	for i, h := range grants {
		claims[i] = h.claim
	}
	renewed, err := f.locks.Renew(f.ctx, claims, life)
	if err != nil {
		f.t.Fatalf("Renew: %v", err)
	}
	answers := make([]bool, len(grants))
	for i, claim := range claims {
		answers[i] = slices.Contains(renewed, claim)
	}
	return answers
}

func grantTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a lock has one holder":                               oneHolder,
		"a stalled holder cannot release what another holds":  stalledHolder,
		"a crash frees the lock at its expiry and not before": crashFrees,
		"a renewal extends what is held and nothing else":     renewalExtends,
		"the fence rises over release, expiry and force":      fenceRises,
		"asking again answers the same grant":                 askedAgain,
		"a claim that was given back can be asked for again":  givenBack,
		"names do not meet":                                   namesApart,
		"what is out of bounds is refused":                    boundsRefused,
		"a short grant expires to the millisecond":            shortGrant,
	}
}

func oneHolder(_ *testing.T, f *fixture) {
	a := f.take("nightly", 1)
	f.refused("nightly", 1)
	f.release(a, true)
	b := f.take("nightly", 1)
	f.release(a, false)
	f.refused("nightly", 1)
	f.release(b, true)
	f.release(b, false)
}

// stalledHolder is the zombie's story: A stalls past its time, B acquires, A
// releases: the lock of B is kept.
func stalledHolder(t *testing.T, f *fixture) {
	a := f.take("nightly", 1)
	f.advance(life + time.Second)
	b := f.take("nightly", 1)
	if !b.TookOver {
		t.Error("the answer does not say that the last holder let the lock expire")
	}
	if renewed := f.renew(a, b); renewed[0] || !renewed[1] {
		t.Errorf("renewed %v, want the second holder's alone", renewed)
	}
	f.release(a, false)
	f.refused("nightly", 1)
	if renewed := f.renew(a, b); renewed[0] || !renewed[1] {
		t.Errorf("renewed %v, want the second holder's alone", renewed)
	}
	f.release(b, true)
	if c := f.take("nightly", 1); c.TookOver {
		t.Error("a lock that was released counts as taken over")
	}
}

func crashFrees(_ *testing.T, f *fixture) {
	f.take("nightly", 1)
	f.advance(life - time.Minute)
	f.refused("nightly", 1)
	f.advance(time.Minute + time.Second)
	f.take("nightly", 1)
}

func renewalExtends(t *testing.T, f *fixture) {
	a, b, gone := f.take("a", 1), f.take("b", 1), f.take("gone", 1)
	f.release(gone, true)
	never := held{name: "never", claim: lease.NewClaimID()}
	f.advance(life - time.Minute)
	if renewed := f.renew(a, never, gone); !renewed[0] || renewed[1] || renewed[2] {
		t.Errorf("renewed %v, want the first alone", renewed)
	}
	f.advance(life - time.Minute)
	f.refused("a", 1)
	if after := f.take("b", 1); after.Fence <= b.Fence {
		t.Errorf("fence %d after %d", after.Fence, b.Fence)
	}
	f.take("gone", 1)
	f.advance(2 * time.Minute)
	f.take("a", 1)
	if renewed, err := f.locks.Renew(f.ctx, nil, life); err != nil || len(renewed) != 0 {
		t.Errorf("renewing nothing: %v, %v", renewed, err)
	}
}

func fenceRises(t *testing.T, f *fixture) {
	last := lease.Fence(0)
	rises := func(h held, what string) {
		t.Helper()
		if h.Fence <= last {
			t.Fatalf("after %s the fence is %d, and was %d", what, h.Fence, last)
		}
		last = h.Fence
	}
	for range 5 {
		h := f.take("nightly", 1)
		rises(h, "a release")
		f.release(h, true)
	}
	rises(f.take("nightly", 1), "a release")
	f.advance(2 * life)
	rises(f.take("nightly", 1), "an expiry")
	if released, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: "nightly", By: "op"}); err != nil || !released {
		t.Fatalf("force: %v, %v", released, err)
	}
	rises(f.take("nightly", 1), "force")
	for range 3 { // other slots of the name too
		rises(f.take("nightly", 4), "a grant of another slot")
	}
}

func askedAgain(t *testing.T, f *fixture) {
	r := request("nightly", 3)
	first := f.ask(r)
	f.advance(life - time.Minute)
	again := f.ask(r)
	if !again.Granted || again.Slot != first.Slot || again.Fence != first.Fence || again.TookOver {
		t.Fatalf("asked again: %+v, and first %+v", again, first)
	}
	f.advance(life - time.Minute)
	if again = f.ask(r); again.Fence != first.Fence {
		t.Fatalf("the grant was not extended by asking: %+v, and first %+v", again, first)
	}
	f.take("nightly", 3)
	f.take("nightly", 3)
	f.refused("nightly", 3)
}

func givenBack(t *testing.T, f *fixture) {
	r := request("nightly", 1)
	first := f.ask(r)
	f.release(held{first, r.Name, r.Claim}, true)
	if again := f.ask(r); !again.Granted || again.Fence <= first.Fence {
		t.Fatalf("%+v after %+v, want a new grant", again, first)
	}
}

func namesApart(_ *testing.T, f *fixture) {
	names := []string{
		"a", "A", "a ", "a:b", "a:slot:0", "{a}", "}{", "{", "%7B", "*", "a*", "[a]", "ключ", "日本", "a\nb", `a"b'c\`, "a%", "a_",
		strings.Repeat("x", lock.MaxName), strings.Repeat("x", lock.MaxName-1) + "y",
	}
	for _, name := range names {
		f.take(name, 1)
	}
	for _, name := range names {
		f.refused(name, 1)
	}
	for _, prefix := range []string{"a", "{", "*", "a*", "a%", "a_", "[a"} {
		want := 0
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want++
			}
		}
		if found, err := f.locks.ListLocks(f.ctx, prefix, 100); err != nil || len(found) != want {
			f.t.Errorf("names that begin with %q: %d, %v, want %d", prefix, len(found), err, want)
		}
	}
}

func boundsRefused(t *testing.T, f *fixture) {
	for what, change := range map[string]func(*lock.Request){
		"empty name":        func(r *lock.Request) { r.Name = "" },
		"long name":         func(r *lock.Request) { r.Name = strings.Repeat("x", lock.MaxName+1) },
		"NUL":               func(r *lock.Request) { r.Name = "a\x00" },
		"no UTF-8":          func(r *lock.Request) { r.Name = "a\xff" },
		"no slot":           func(r *lock.Request) { r.Slots = 0 },
		"too many slots":    func(r *lock.Request) { r.Slots = lock.MaxSlots + 1 },
		"no claim":          func(r *lock.Request) { r.Claim = lease.ClaimID{} },
		"long owner":        func(r *lock.Request) { r.Owner = strings.Repeat("x", lock.MaxName+1) },
		"negative duration": func(r *lock.Request) { r.Duration = -1 },
	} {
		r := request("nightly", 1)
		change(&r)
		if answer, err := f.locks.Acquire(f.ctx, r); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %+v, %v", what, answer, err)
		}
	}
	if _, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: "nightly"}); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a forced release without an operator: %v", err)
	}
}

func shortGrant(t *testing.T, f *fixture) {
	r := request("tick", 1)
	r.Duration = time.Second
	if answer := f.ask(r); !answer.Granted {
		t.Fatalf("%+v", answer)
	}
	f.advance(1001 * time.Millisecond)
	f.take("tick", 1)
}

// together runs n functions at the same moment and waits for all.
func (f *fixture) together(n int, function func(ctx context.Context, i int) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	start := make(chan struct{})
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = function(ctx, i)
		})
	}
	close(start)
	group.Wait()
	for i, err := range errs {
		if err != nil {
			f.t.Errorf("goroutine %d: %v", i, err)
		}
	}
}

func nth(i int) string { return fmt.Sprintf("lock-%03d", i) }
