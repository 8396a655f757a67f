package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func limitCheckTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a sound store has no fault, whatever waits, executes, is retried or was changed": limitsAreSound,
		"keys that nothing remembers are forgotten, and their limits hold after it":       idleKeysGo,
	}
}

// sound fails the test if anything is wrong with the limits.
func (f *fixture) sound() {
	f.t.Helper()
	faults, err := f.store.CheckLimits(f.ctx)
	if err != nil {
		f.t.Fatalf("CheckLimits: %v", err)
	}
	for _, fault := range faults {
		f.t.Errorf("limit %q, key %q, run %s is %s: %s", fault.Limit, fault.Key, fault.Run, fault.Fault, fault.Text)
	}
}

func limitsAreSound(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 2), semaphore("api", 3), store.Limit{Name: "rate", Kind: store.LimitTokenBucket, Max: 2, Period: time.Second, Burst: 2})
	for _, texts := range [][]string{{"tenant=a"}, {"tenant=a*2", "api"}, {"tenant=b!finished", "api"}, {"rate"}, {"rate", "tenant=c"}, {"api*2"}} {
		for range 4 {
			f.enqueue(newRun(limited(texts...), func(r *store.NewRun) { r.MaxAttempts = 3 }))
		}
	}
	f.sound()
	first := f.admit(4)
	f.sound()
	second := f.admit(10)
	f.sound()
	f.changeLimit(store.SetLimit, semaphore("tenant", 1))
	f.changeLimit(store.DrainLimit, store.Limit{Name: "api"})
	f.sound()
	first.end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour})
	f.sound()
	f.changeLimit(store.DisableLimit, store.Limit{Name: "api"})
	third := f.admit(10)
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "api"})
	f.sound()
	second.end(success())
	third.end(success())
	f.sound()
	f.advance(31 * time.Second)
	f.sound()
	f.admitAll(5)
	f.advance(31 * time.Second)
	for len(f.reclaim().Runs) > 0 {
	}
	f.sound()
}

func idleKeysGo(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), store.Limit{Name: "rate", Kind: store.LimitFixedWindow, Max: 1, Period: time.Hour})
	for range 2 {
		f.enqueue(newRun(limited("tenant=a", "rate=a")))
	}
	a := f.admit(5)
	if len(a.runs) != 1 {
		t.Fatalf("%d runs were admitted, want 1", len(a.runs))
	}
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	if got := f.admit(5); len(got.runs) != 0 {
		t.Error("a sweep has made a limit forget what is held")
	}
	a.end(success())
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	if got := f.admit(5); len(got.runs) != 0 {
		t.Error("a sweep has made a window forget a start")
	}
	f.advance(time.Hour)
	if got := f.admit(5); len(got.runs) != 1 {
		t.Errorf("%d runs were admitted in the next window, want 1", len(got.runs))
	} else {
		got.end(success())
	}
	f.advance(2*time.Hour + time.Second)
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	f.sound()
	info, err := f.store.Gate(f.ctx, "tenant", "a")
	if err != nil && !errors.Is(err, store.ErrNotFound) || info.InUse != 0 {
		t.Errorf("the key has %d places in use, %v", info.InUse, err)
	}
}
