package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func limitLineTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a waiter that is cancelled or deleted is in no other's way":       waiterGone,
		"what an operator retries waits in line":                           operatorRetries,
		"a run made after another one is limited as it says":               rerunLimited,
		"a run that replaces a waiter takes its limits":                    waiterReplaced,
		"a waiter that is debounced is admitted once, when it is due":      waiterDebounced,
		"a run that becomes limited, or is so no more, by a replacement":   kindReplaced,
		"a paused queue holds its own waiters, and no others":              pausedWaiters,
		"a waiter that has expired is admitted, to be cancelled":           expiredWaiter,
		"a waiter that is due later is admitted when it is due":            futureWaiter,
		"waiters of many instants are each admitted when they are due":     manyInstants,
		"within a key the higher priority goes first, then the first come": waiterOrder,
		"a key with many waiters delays no other":                          manyKeysFair,
		"many enqueues to keys that are full are answered together":        burstAtFullKeys,
		"runs of a schedule are limited":                                   scheduleLimited,
		"runs enqueued under a run and in a transaction are limited":       underLimited,
		"two workers of different queues share a limit fairly":             twoWorkersShare,
		"a lane that no worker serves holds up a limit for a second":       unservedLane,
		"a listener is woken when a place is free for which a run waits":   wokenByRelease,
	}
}

// command gives an operator's command about one run.
func (f *fixture) command(action store.RunAction, id store.RunID) {
	f.t.Helper()
	changed, err := f.store.Operate(f.ctx, store.RunCommand{Action: action, Runs: []store.RunID{id}, By: "ann"})
	if err != nil || changed[0].Result != store.RunChanged {
		f.t.Fatalf("%s: %+v, %v", action, changed, err)
	}
}

func waiterGone(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(5, limited("api"))
	f.enqueue(runs...)
	claims := f.wantAdmitted("it", runs[0])
	f.command(store.CancelRuns, runs[1].ID)
	f.command(store.DeleteRuns, runs[2].ID)
	f.wantGate("two have gone", "api", "", 1, 2)
	claims.end(success())
	claims = f.wantAdmitted("the next", runs[3])
	f.command(store.CancelRuns, runs[4].ID)
	claims.end(success())
	f.wantAdmitted("none is left")
	f.wantGate("at the end", "api", "", 0, 0)
}

func operatorRetries(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(3, limited("api"))
	f.enqueue(runs[0])
	f.wantAdmitted("it", runs[0]).end(store.Outcome{Kind: store.Death, Error: "e"})
	f.enqueue(runs[1:]...)
	f.command(store.CancelRuns, runs[1].ID)
	claims := f.wantAdmitted("the one that is left", runs[2])
	f.command(store.RetryRuns, runs[0].ID)
	f.command(store.RetryRuns, runs[1].ID)
	f.wantGate("retried", "api", "", 1, 2)
	f.wantAdmitted("full")
	claims.end(success())
	f.wantAdmitted("the first retried", runs[0]).end(success())
	f.wantAdmitted("the second retried", runs[1]).end(success())
}

func rerunLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(2, limited("api"))
	f.enqueue(runs[0])
	claims := f.wantAdmitted("it", runs[0])
	if _, err := f.store.Rerun(f.ctx, runs[0].ID, runs[1], "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantAdmitted("full")
	claims.end(success())
	f.wantAdmitted("the other", runs[1])
}

func waiterReplaced(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), semaphore("api", 1))
	replacing := func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} }
	holders := []store.NewRun{newRun(limited("tenant=a")), newRun(limited("tenant=b"))}
	f.enqueue(holders...)
	busy := f.wantAdmitted("one of each key", holders...)
	first := newRun(limited("tenant=a"), replacing)
	f.enqueue(first)
	f.wantAdmitted("a is full")
	f.existing(first.ID, newRun(limited("tenant=b"), replacing))
	f.wantGate("replaced", "tenant", "a", 1, 0)
	f.wantGate("replaced", "tenant", "b", 1, 1)
	f.wantAdmitted("b is full")
	f.existing(first.ID, newRun(limited("tenant=c", "api"), replacing))
	f.wantAdmitted("c is free", first).end(success())
	busy.end(success())
	f.wantAdmitted("none is left")
}

func waiterDebounced(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	debounced := func(r *store.NewRun) {
		r.Key = store.Key{Text: "k", Policy: store.KeyDebounce, Quiet: time.Minute}
	}
	first := newRun(limited("tenant=a"), debounced)
	f.enqueue(first)
	f.advance(40 * time.Second)
	f.existing(first.ID, newRun(limited("tenant=a"), debounced))
	f.advance(40 * time.Second)
	f.wantAdmitted("not due any more")
	f.wantGate("it waits", "tenant", "a", 0, 1)
	f.advance(21 * time.Second)
	f.wantAdmitted("due", first).end(success())
	f.wantGate("at the end", "tenant", "a", 0, 0)
}

func kindReplaced(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	replacing := func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} }
	run := newRun(replacing)
	f.enqueue(run)
	f.existing(run.ID, newRun(limited("api"), replacing))
	if _, claimed := f.claim(newWorker("w1"), 1); len(claimed) != 0 {
		t.Fatal("a plain claim takes a run that has become limited")
	}
	f.existing(run.ID, newRun(replacing))
	f.wantAdmitted("it is limited no more")
	if got := f.record(run.ID).Limits; len(got) != 0 {
		t.Errorf("it has the limits %v", got)
	}
	if _, claimed := f.claim(newWorker("w1"), 1); len(claimed) != 1 {
		t.Fatal("a plain claim does not take it")
	}
	f.wantGate("at the end", "api", "", 0, 0)
}

func pausedWaiters(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	paused := newRuns(2, limited("api"), func(r *store.NewRun) { r.Queue = "other" })
	f.enqueue(paused...)
	stale := f.admission(newWorker("w2"), 10, "other")
	f.setQueue("other", store.PauseQueue)
	if a := f.admit(10, "other"); len(a.runs) != 0 {
		t.Fatal("a run of a paused queue was admitted")
	}
	if claimed, err := f.store.Claim(f.ctx, stale); err != nil || len(claimed) != 0 {
		t.Fatalf("a claim planned before the pause got %d runs (%v)", len(claimed), err)
	}
	runs := newRuns(2, limited("api"))
	f.enqueue(runs...)
	claims := f.wantAdmitted("those who were there first are paused", runs[0])
	f.setQueue("other", store.ResumeQueue)
	claims.end(success())
	a := f.admit(10, "other")
	f.wantIDs("resumed, and first in line", admittedAll{a}.ids(), paused[0])
	a.end(success())
	a = f.admit(10, "other")
	f.wantIDs("the next", admittedAll{a}.ids(), paused[1])
	a.end(success())
	f.wantAdmitted("the last", runs[1])
}

func expiredWaiter(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	holder, run := newRun(limited("api")), newRun(limited("api"), func(r *store.NewRun) { r.ExpiresAt = f.now().Add(time.Minute) })
	f.enqueue(holder, run)
	claims := f.wantAdmitted("it", holder)
	f.advance(2 * time.Minute)
	claims.end(success())
	expired := f.wantAdmitted("it has expired meanwhile", run)
	if !expired[0].runs[0].Expired {
		t.Error("its claim does not say that it has expired")
	}
	expired.end(store.Outcome{Kind: store.Cancellation, Error: "expired"})
	f.wantGate("at the end", "api", "", 0, 0)
}

func futureWaiter(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	later := newRun(limited("api"), func(r *store.NewRun) { r.After = time.Minute })
	sooner := newRun(limited("api"))
	f.enqueue(later, sooner)
	f.wantAdmitted("what is due", sooner).end(success())
	f.wantAdmitted("nothing is due")
	f.wantGate("it waits", "api", "", 0, 1)
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		t.Fatal(err)
	}
	soon := slices.ContainsFunc(heads, func(h store.Head) bool {
		return h.Line > 0 && h.Waiting && h.In > 30*time.Second && h.In <= time.Minute
	})
	if !soon {
		t.Errorf("heads %+v, want a turn in a minute", heads)
	}
	f.advance(time.Minute)
	f.wantAdmitted("due", later)
}

func manyInstants(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 10))
	var runs []store.NewRun
	for i := range 5 {
		runs = append(runs, newRun(limited("api"), func(r *store.NewRun) { r.After = time.Duration(i) * time.Minute }))
	}
	f.enqueue(slices.Concat(runs[3:], runs[:3])...)
	for i := range runs {
		f.wantAdmitted("one after the other", runs[i]).end(success())
		f.advance(time.Minute)
	}
}

func waiterOrder(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	var runs []store.NewRun
	for i, priority := range []int{0, -1, 1, 0, 1} {
		runs = append(runs, newRun(limited("api"), func(r *store.NewRun) {
			r.Priority, r.At = priority, f.now().Add(-time.Minute+time.Duration(i)*time.Second)
		}))
	}
	f.enqueue(runs[4], runs[3], runs[2], runs[1], runs[0])
	for i, next := range []int{2, 4, 0, 3, 1} {
		claims := admittedAll(f.admitAll(10))
		f.wantIDs("the next in order", claims.ids(), runs[next])
		if waiting := f.gate("api", "").Waiting.N; int(waiting) != len(runs)-1-i {
			t.Errorf("%d wait", waiting)
		}
		claims.end(success())
	}
}

func manyKeysFair(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 100))
	f.enqueue(newRuns(50, limited("tenant=many"))...)
	few := []store.NewRun{newRun(limited("tenant=a")), newRun(limited("tenant=b"))}
	f.enqueue(few...)
	first := admittedAll{f.admit(6)}.ids()
	if !slices.Contains(first, few[0].ID) || !slices.Contains(first, few[1].ID) || len(first) < 3 {
		t.Errorf("of three keys %d runs were admitted first, want those of the two small ones among them", len(first))
	}
	f.admitAll(10)
	f.wantGate("all", "tenant", "many", 50, 0)
}

// burstAtFullKeys has the enqueues of many instants announce waiters of keys that have no
// place free. One admission answers for all of a key: those that are due later, and those
// that are due now.
func burstAtFullKeys(t *testing.T, f *fixture) {
	const keys = 7
	f.declareLimits(semaphore("tenant", 1))
	each := func(after time.Duration) (runs []store.NewRun) {
		for i := range keys {
			runs = append(runs, newRun(limited("tenant="+string(rune('a'+i))), func(r *store.NewRun) { r.After = after }))
		}
		return runs
	}
	holders := each(0)
	f.enqueue(holders...)
	claims := f.wantAdmitted("one of each key", holders...)
	for i := range 8 {
		f.enqueue(each(0)...)
		f.enqueue(each(time.Duration(i+1) * time.Second)...)
	}
	f.advance(10 * time.Second)
	for range 2 { // on the line of the lane
		if a := f.admit(keys); len(a.runs) != 0 {
			t.Fatalf("%d runs were admitted to keys that are full", len(a.runs))
		}
	}
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range heads {
		if head.Line != 0 && head.Waiting {
			t.Errorf("after two admissions another is due: %+v", head)
		}
	}
	claims.end(success())
	next := admittedAll(f.admitAll(keys))
	if len(next.ids()) != keys {
		t.Errorf("%d runs were admitted when a place of each key was free, want %d", len(next.ids()), keys)
	}
	f.sound()
}

func scheduleLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	one, bad := newSchedule("one"), newSchedule("bad")
	one.Limits = limitUses(t, "api")
	bad.Limits = limitUses(t, "nowhere")
	f.declare(one, bad)
	f.materialize(10, in(time.Minute))
	f.advance(time.Hour)
	var made []store.NewRun
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		d := store.Decision{NextAt: now.Add(time.Hour)}
		for _, key := range []string{"1", "2"} {
			run := s.RunAt(now)
			if s.Name == "one" {
				made = append(made, run)
			}
			d.Occurrences = append(d.Occurrences, store.Occurrence{Key: key, Run: run})
		}
		return d
	})
	if fault := f.schedule("bad").Fault; fault == nil {
		t.Error("a schedule whose limit is not known has no fault")
	}
	if record := f.schedule("one"); record.Fault != nil || len(record.Limits) != 1 || record.Limits[0].Limit != "api" {
		t.Errorf("the schedule is %+v", record)
	}
	if _, claimed := f.claim(newWorker("w1"), 10); len(claimed) != 0 {
		t.Errorf("a plain claim got %d runs", len(claimed))
	}
	first := admittedAll(f.admitAll(10))
	if len(first.ids()) != 1 || !slices.ContainsFunc(made, func(r store.NewRun) bool { return r.ID == first.ids()[0] }) {
		t.Fatalf("admitted %v, want one of %d", first.ids(), len(made))
	}
	id := store.NewRunID()
	if err := f.store.RunSchedule(f.ctx, "one", id, store.OverlapAllow, "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantGate("full", "api", "", 1, 2)
	first.end(success())
	f.admitAll(1)
	f.wantGate("the next", "api", "", 1, 1)
}

func limitUses(t *testing.T, texts ...string) []store.LimitUse {
	t.Helper()
	uses, err := store.ParseLimitTexts(texts)
	if err != nil {
		t.Fatal(err)
	}
	return uses
}

func underLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	f.enqueue(newRun())
	claim, parent := f.claimOne(newWorker("w1"))
	runs := newRuns(4, limited("api"))
	if _, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: parent.ID, Claim: claim}, runs[0], newRun()); err != nil {
		t.Fatal(err)
	}
	f.wantAdmitted("enqueued under a run", runs[0]).end(success())
	if f.backend.Begin == nil {
		return
	}
	tx := f.begin()
	f.enqueueIn(tx, runs[1], newRun(), runs[2])
	tx.Rollback()
	f.wantGate("rolled back", "api", "", 0, 0)
	tx = f.begin()
	f.enqueueIn(tx, runs[1], newRun(), runs[2])
	f.commit(tx)
	f.wantAdmitted("enqueued in a transaction", runs[1]).end(success())
	f.wantAdmitted("the other", runs[2])
}
