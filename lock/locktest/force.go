package locktest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

func forceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"the list names who holds what":                        listed,
		"a forced release fences the holder out":               forced,
		"a forced release of what is not held is not recorded": forcedNothing,
		"what no lock can be called is refused":                unnameable,
	}
}

func listed(t *testing.T, f *fixture) {
	f.take("a/1", 1)
	f.take("a/2", 2)
	second := f.take("a/2", 2)
	gone := f.take("a/3", 1)
	f.release(gone, true)
	f.take("b", 1)
	records, err := f.locks.ListLocks(f.ctx, "a/", 100)
	if err != nil || len(records) != 3 {
		t.Fatalf("%+v, %v, want three", records, err)
	}
	inOrder := slices.IsSortedFunc(records, func(x, y lock.Record) int {
		if x.Name != y.Name {
			return slices.Compare([]byte(x.Name), []byte(y.Name))
		}
		return x.Slot - y.Slot
	})
	r := records[2]
	if !inOrder || r.Name != "a/2" || r.Slot != second.Slot || r.Fence != second.Fence || r.Claim != second.claim.Short() ||
		r.Owner != "owner of a/2" || r.Expired || r.ExpiresAt.Sub(r.AcquiredAt).Round(time.Second) != life {
		t.Errorf("%+v", records)
	}
	if records, err = f.locks.ListLocks(f.ctx, "", 2); err != nil || len(records) != 2 {
		t.Errorf("%+v, %v, want two", records, err)
	}
	f.advance(2 * life)
	records, err = f.locks.ListLocks(f.ctx, "b", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records { // a store may also have forgotten it
		if !r.Expired {
			t.Errorf("%+v has expired", r)
		}
	}
}

func forced(t *testing.T, f *fixture) {
	a := f.take("nightly", 2)
	b := f.take("nightly", 2)
	released, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: "nightly", Slot: a.Slot, By: "ada", Reason: "its host is on fire"})
	if err != nil || !released {
		t.Fatalf("%v, %v", released, err)
	}
	if renewed := f.renew(a, b); renewed[0] || !renewed[1] {
		t.Errorf("renewed %v, want the other slot's alone", renewed)
	}
	f.release(a, false)
	next := f.take("nightly", 2)
	if next.Slot != a.Slot || next.Fence <= a.Fence || next.TookOver {
		t.Errorf("%+v after %+v", next, a)
	}
	records, err := f.locks.ListForced(f.ctx, 10)
	if err != nil || len(records) != 1 {
		t.Fatalf("%+v, %v, want one", records, err)
	}
	r := records[0]
	if r.Name != "nightly" || r.Slot != a.Slot || r.Fence != a.Fence || r.By != "ada" || r.Reason != "its host is on fire" ||
		r.Owner != "owner of nightly" || r.At.IsZero() {
		t.Errorf("%+v", r)
	}
}

func forcedNothing(t *testing.T, f *fixture) {
	for _, name := range []string{"never", "nightly"} {
		released, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: name, By: "ada"})
		if err != nil || released {
			t.Errorf("%s: %v, %v", name, released, err)
		}
	}
	h := f.take("nightly", 1)
	f.release(h, true)
	if released, err := f.locks.ForceRelease(f.ctx, lock.Force{Name: "nightly", By: "ada"}); err != nil || released {
		t.Errorf("%v, %v", released, err)
	}
	if records, err := f.locks.ListForced(f.ctx, 10); err != nil || len(records) != 0 {
		t.Errorf("%+v, %v, want none", records, err)
	}
}

func unnameable(t *testing.T, f *fixture) {
	for _, name := range []string{"a\x00b", "\x00", "a\xff", strings.Repeat("n", lock.MaxName+1)} {
		refused := func(what string, err error) {
			if !errors.Is(err, lock.ErrInvalid) || len(err.Error()) > 500 {
				t.Errorf("%s of %.20q answered %v, want ErrInvalid", what, name, err)
			}
		}
		_, err := f.locks.ListLocks(f.ctx, name, 10)
		refused("ListLocks", err)
		_, err = f.locks.ListWaits(f.ctx, name, 10)
		refused("ListWaits", err)
		_, err = f.locks.Release(f.ctx, name, lease.NewClaimID())
		refused("Release", err)
		_, err = f.locks.ForceRelease(f.ctx, lock.Force{Name: name, By: "ada"})
		refused("ForceRelease", err)
		_, err = f.locks.ForceRelease(f.ctx, lock.Force{Name: "nightly", By: "ada", Reason: name})
		refused("ForceRelease", err)
	}
}
