package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func onQueue(queue string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Queue = queue }
}

// twoWorkersShare has two workers of different queues on one limit, of which the
// first always asks first.
func twoWorkersShare(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	for range 20 {
		f.enqueue(newRun(limited("api"), onQueue("first")), newRun(limited("api"), onQueue("second")))
	}
	starts := map[string]int{}
	held := admittedAll{}
	for rounds := 0; starts["first"]+starts["second"] < 20; rounds++ {
		if rounds == 200 {
			t.Fatalf("after %d rounds no more than %v have started", rounds, starts)
		}
		for _, queue := range []string{"first", "second"} {
			if a := f.admit(2, queue); len(a.runs) > 0 {
				starts[queue] += len(a.runs)
				held = append(held, a)
			}
			if len(held) > 0 {
				held[0].end(success())
				held = held[1:]
			}
		}
	}
	if starts["first"] < 6 || starts["second"] < 6 {
		t.Errorf("starts %v, want about as many of each", starts)
	}
}

func unservedLane(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	unserved, run := newRun(limited("api"), onQueue("other")), newRun(limited("api"))
	f.enqueue(unserved)
	f.enqueue(run)
	f.wantAdmitted("the place is kept for the one that came first")
	f.advance(2 * time.Second)
	claims := f.wantAdmitted("its worker does not come", run)
	next := newRun(limited("api"))
	f.enqueue(next)
	claims.end(success())
	claims = f.wantAdmitted("for a while the lane is passed by", next)
	a := f.admit(1, "other")
	f.wantIDs("full", admittedAll{a}.ids())
	claims.end(success())
	a = f.admit(1, "other")
	f.wantIDs("its worker has come", admittedAll{a}.ids(), unserved)
	a.end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}

func wokenByRelease(_ *testing.T, f *fixture) {
	if f.backend.Deaf {
		return
	}
	f.declareLimits(semaphore("api", 1))
	f.enqueue(newRuns(100, limited("api"))...)
	held := f.admit(1)
	f.woken(1, func() {
		held.end(success())
		held = f.admit(1)
	})
}

// txLimits enqueues limited runs through a transaction, alone, beside others, and with
// a key that an earlier one holds.
func txLimits(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 10, Period: time.Second, Burst: 10})
	first := newRun(limited("tenant=acme", "api*2"))
	keyed := newRun(limited("tenant=keyed"), with(unique("k")))
	enqueue := func(tx Transaction) {
		f.enqueueIn(tx, first)
		f.enqueueIn(tx, newRun(limited("tenant=other")), newRun(), keyed)
		f.passed(t, tx, keyed.ID, newRun(limited("tenant=acme", "api"), with(replacing("k"))))
		unknown := newRun(limited("unheard-of"))
		if _, err := tx.Enqueue(f.ctx, unknown); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a limit that is not there answered %v, want ErrInvalid", err)
		}
	}
	tx := f.begin()
	enqueue(tx)
	tx.Rollback()
	if got := f.admit(10); len(got.runs) != 0 {
		t.Errorf("%d runs of a transaction that rolled back were admitted", len(got.runs))
	}
	tx = f.begin()
	enqueue(tx)
	f.commit(tx)
	if got := f.admit(10); len(got.runs) != 2 {
		t.Errorf("%d runs were admitted, want one of each tenant", len(got.runs))
	}
	if counts, err := f.store.Counts(f.ctx); err != nil || counts[store.Pending].N != 2 {
		t.Errorf("%d runs are pending, want 2: %v", counts[store.Pending].N, err)
	}
}
