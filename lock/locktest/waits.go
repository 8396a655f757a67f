package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

func waitTests(deaf bool) map[string]func(*testing.T, *fixture) {
	tests := map[string]func(*testing.T, *fixture){
		"a wait is listed until it is withdrawn": notedWait,
		"a wait that is not noted again lapses":  lapsedWait,
		"an invalid wait is refused":             invalidWait,
	}
	if !deaf {
		tests["who waits is notified of a release, also by force"] = heardRelease
		tests["each of two that wait is notified of some releases"] = heardInTurn
	}
	return tests
}

func (f *fixture) note(name string, waiter lease.ClaimID, calls int) {
	f.t.Helper()
	wait := lock.Wait{Name: name, Waiter: waiter, Owner: "owner of " + name, Calls: calls}
	if err := f.locks.NoteWait(f.ctx, wait, life); err != nil {
		f.t.Fatalf("NoteWait %q: %v", name, err)
	}
}

func (f *fixture) waits(prefix string, limit int) []lock.Wait {
	f.t.Helper()
	waits, err := f.locks.ListWaits(f.ctx, prefix, limit)
	if err != nil {
		f.t.Fatalf("ListWaits: %v", err)
	}
	return waits
}

func notedWait(t *testing.T, f *fixture) {
	one, two := lease.NewClaimID(), lease.NewClaimID()
	f.note("a{*}", one, 3)
	f.note("a{*}", two, 1)
	f.note("b", one, 1)
	first := f.waits("", 10)
	if len(first) != 3 || first[0].Name != "a{*}" || first[2].Name != "b" || first[0].Owner != "owner of a{*}" || first[0].Since.IsZero() {
		t.Fatalf("%+v", first)
	}
	f.note("a{*}", one, 2)
	for _, w := range f.waits("a{", 10) {
		want := lock.Wait{Name: "a{*}", Waiter: w.Waiter, Owner: "owner of a{*}", Calls: 1, Since: w.Since}
		if w.Waiter == one {
			want.Calls = 2
		}
		if w != want || w.Since.After(first[1].Since) {
			t.Errorf("%+v, want %+v", w, want)
		}
	}
	if got := f.waits("", 1); len(got) != 1 {
		t.Errorf("%+v, want one", got)
	}
	f.note("a{*}", one, 0)
	f.note("a{*}", one, 0)
	if got := f.waits("a{", 10); len(got) != 1 || got[0].Waiter != two {
		t.Errorf("%+v, want the other's", got)
	}
}

func lapsedWait(t *testing.T, f *fixture) {
	one := lease.NewClaimID()
	f.note("nightly", one, 1)
	f.advance(life - time.Minute)
	if got := f.waits("", 10); len(got) != 1 {
		t.Fatalf("%+v, want one", got)
	}
	f.advance(2 * time.Minute)
	if got := f.waits("", 10); len(got) != 0 {
		t.Fatalf("%+v, want none", got)
	}
	f.note("nightly", one, 1)
	if got := f.waits("", 10); len(got) != 1 {
		t.Fatalf("%+v, want one", got)
	}
}

// listenAs listens for a waiter until the test ends, and returns once it listens.
func (f *fixture) listenAs(waiter lease.ClaimID) <-chan string {
	f.t.Helper()
	heard := make(chan string, 100)
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.locks.HearFreed(ctx, waiter, func(name string) { heard <- name }) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("HearFreed: %v", err)
		}
	})
	if name := f.next(heard); name != "" {
		f.t.Fatalf("notified of %q before it could", name)
	}
	return heard
}

func (f *fixture) next(heard <-chan string) string {
	f.t.Helper()
	select {
	case name := <-heard:
		return name
	case <-time.After(patience):
		f.t.Fatal("no notice came")
		return ""
	}
}

func heardRelease(t *testing.T, f *fixture) {
	one := lease.NewClaimID()
	heard := f.listenAs(one)
	f.note("a b", one, 1)
	f.note("forced", one, 1)
	f.note("other", lease.NewClaimID(), 1)
	for _, name := range []string{"other", "idle", "a b"} {
		f.release(f.take(name, 1), true)
	}
	if name := f.next(heard); name != "a b" {
		t.Errorf("notified of %q, want what it waits for", name)
	}
	f.take("forced", 1)
	if _, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: "forced", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if name := f.next(heard); name != "forced" {
		t.Errorf("notified of %q, want what was freed by force", name)
	}
}

func heardInTurn(t *testing.T, f *fixture) {
	one, two := lease.NewClaimID(), lease.NewClaimID()
	first, second := f.listenAs(one), f.listenAs(two)
	f.note("nightly", one, 1)
	f.note("nightly", two, 1)
	deadline := time.After(patience)
	for first != nil || second != nil {
		f.release(f.take("nightly", 1), true)
		select {
		case <-first:
			first = nil
		case <-second:
			second = nil
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("one of the two is notified of nothing")
		}
	}
}

func invalidWait(t *testing.T, f *fixture) {
	for _, wait := range []lock.Wait{{Waiter: lease.NewClaimID(), Calls: 1}, {Name: "nightly", Calls: 1}, {Name: "a\x00", Waiter: lease.NewClaimID()}} {
		if err := f.locks.NoteWait(f.ctx, wait, life); err == nil {
			t.Errorf("%+v was noted", wait)
		}
	}
}
