package storetest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func linkTests() map[string]func(*testing.T, *fixture) {
	tests := childTests()
	maps.Copy(tests, dependentTests())
	maps.Copy(tests, deathTests())
	maps.Copy(tests, linkReadTests())
	return tests
}

func dependentTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a dependent is due when its conditions are met":         dependentTable,
		"a dependent of two waits for both":                      dependentOfTwo,
		"a dependent of the failure of any waits for one":        dependentOfAny,
		"a dependent of a run that is executing":                 dependentOfExecuting,
		"a dependent of runs that have ended is due immediately": dependentOfEnded,
		"a chain is stored in one call":                          dependentChain,
		"a limited dependent is released into its line":          dependentLimited,
		"a dependent that still waits expires":                   dependentExpires,
		"dependents that no engine could release are refused":    dependentRefused,
		"a dead source holds, and its retry lets go":             dependentHeld,
		"a cancelled dependent that is retried waits again":      dependentRetried,
		"an operator releases a dependent that waits":            dependentReleased,
		"a run that depends on others is not replaced":           dependentKeyed,
		"retention keeps what an unfinished run waits for":       dependentKept,
		"all dependents of one run are released":                 dependentMany,
		"every dependent of runs that end together is released":  dependentRaces,
	}
}

func dependsOn(want store.Want, ids ...store.RunID) func(*store.NewRun) {
	return func(r *store.NewRun) { r.DependsOn = append(r.DependsOn, store.Condition{Want: want, Runs: ids}) }
}

// releaseAll releases until nothing is left to be done.
func (f *fixture) releaseAll() {
	f.t.Helper()
	for range 1000 {
		result := f.release()
		switch {
		case result.Taken > 0 || result.Next == 0:
		case result.Next < 0 || result.Next > time.Minute:
			return
		default:
			<-time.After(result.Next)
		}
	}
	f.t.Fatal("notices are left")
}

// ends settles one of the runs that are due, and hands the others back.
func (f *fixture) ends(id store.RunID, kind store.OutcomeKind) {
	f.t.Helper()
	f.settles(id, store.Outcome{Kind: kind, Error: "broken"})
}

func (f *fixture) settles(id store.RunID, with store.Outcome) {
	f.t.Helper()
	worker := newWorker("w")
	claim, claimed := f.claim(worker, 100)
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	found := false
	for i := range claimed {
		outcome := store.Outcome{Kind: store.HandedBack}
		if claimed[i].ID == id {
			found, outcome = true, with
		}
		settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
	}
	if !found {
		f.t.Fatalf("run %s is not due", id)
	}
	f.settle(settlement)
}

func (f *fixture) wantState(id store.RunID, state store.State, when string) {
	f.t.Helper()
	if got := f.record(id).State; got != state {
		f.t.Errorf("%s: run %s is %s, want %s", when, id, got, state)
	}
}

// wantDue claims and settles what is due, and compares it.
func (f *fixture) wantDue(when string, want ...store.NewRun) {
	f.t.Helper()
	worker := newWorker("w")
	claim, claimed := f.claim(worker, 100)
	var got, ids []store.RunID
	for i := range claimed {
		got = append(got, claimed[i].ID)
	}
	for i := range want {
		ids = append(ids, want[i].ID)
	}
	if !sameRuns(got, ids) {
		f.t.Errorf("%s: due are %v, want %v", when, got, ids)
	}
	if len(claimed) > 0 {
		f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Success}))
	}
}

func sameRuns(a, b []store.RunID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	for _, list := range [][]store.RunID{a, b} {
		slices.SortFunc(list, func(x, y store.RunID) int { return slices.Compare(x[:], y[:]) })
	}
	return slices.Equal(a, b)
}

func dependentTable(t *testing.T, f *fixture) {
	const due, waits, cancelled = "due", "waits", "cancelled"
	ways := map[string]func(id store.RunID){
		"succeeded": func(id store.RunID) { f.ends(id, store.Success) },
		"dead":      func(id store.RunID) { f.ends(id, store.Death) },
		"cancelled": func(id store.RunID) { f.operate(store.CancelRuns, id) },
		"deleted":   func(id store.RunID) { f.operate(store.DeleteRuns, id) },
	}
	for way, becomes := range map[string]map[store.Want]string{
		"succeeded": {store.WantSucceeded: due, store.WantEnded: due, store.WantFailed: cancelled, store.WantAlive: due},
		"dead":      {store.WantSucceeded: waits, store.WantEnded: due, store.WantFailed: due, store.WantAlive: cancelled},
		"cancelled": {store.WantSucceeded: cancelled, store.WantEnded: due, store.WantFailed: due, store.WantAlive: cancelled},
		"deleted":   {store.WantSucceeded: cancelled, store.WantEnded: due, store.WantFailed: due, store.WantAlive: cancelled},
	} {
		for want, fate := range becomes {
			source := newRun()
			f.enqueue(source)
			dependent := newRun(dependsOn(want, source.ID))
			f.enqueue(dependent)
			f.releaseAll()
			f.wantState(dependent.ID, store.Pending, "before")
			ways[way](source.ID)
			f.releaseAll()
			switch fate {
			case due:
				f.wantDue("source "+way+", wants "+want.String(), dependent)
			case waits:
				f.nothingDue("source " + way + ", wants " + want.String())
				f.wantState(dependent.ID, store.Pending, way)
				f.operate(store.CancelRuns, dependent.ID)
			default:
				f.wantState(dependent.ID, store.Cancelled, "source "+way+", wants "+want.String())
				if reason := f.record(dependent.ID).Error; reason == nil || *reason == "" {
					t.Errorf("source %s, wants %s: no reason", way, want)
				}
			}
		}
	}
}

func dependentOfTwo(_ *testing.T, f *fixture) {
	a, b := newRun(), newRun()
	c := newRun(dependsOn(store.WantSucceeded, a.ID, b.ID))
	f.enqueue(a, b, c)
	f.ends(b.ID, store.Success)
	f.releaseAll()
	f.wantDue("one of two has ended", a)
	f.releaseAll()
	f.wantDue("both have", c)
	f.releaseAll()
	f.wantDue("once")
}

func dependentOfAny(_ *testing.T, f *fixture) {
	a, b := newRun(), newRun()
	alarm := newRun(dependsOn(store.WantFailed, a.ID, b.ID))
	f.enqueue(a, b, alarm)
	f.ends(a.ID, store.Success)
	f.releaseAll()
	f.wantState(alarm.ID, store.Pending, "one has succeeded")
	f.ends(b.ID, store.Death)
	f.releaseAll()
	f.wantDue("one has failed", alarm)

	c, d := newRun(), newRun()
	none := newRun(dependsOn(store.WantFailed, c.ID, d.ID))
	f.enqueue(c, d, none)
	f.ends(c.ID, store.Success)
	f.ends(d.ID, store.Success)
	f.releaseAll()
	f.wantState(none.ID, store.Cancelled, "none has failed")
}

func dependentOfExecuting(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	dependent := newRun(dependsOn(store.WantSucceeded, holder.Run))
	f.enqueue(dependent)
	f.release()
	f.nothingDue("the source is executing")
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantDue("the source has ended", dependent)
}

func dependentOfEnded(_ *testing.T, f *fixture) {
	a, b := newRun(), newRun()
	f.enqueue(a, b)
	f.ends(a.ID, store.Success)
	f.ends(b.ID, store.Death)
	c := newRun(dependsOn(store.WantSucceeded, a.ID), dependsOn(store.WantFailed, b.ID))
	f.enqueue(c)
	f.releaseAll()
	f.wantDue("all had ended", c)
}

func dependentChain(_ *testing.T, f *fixture) {
	a := newRun()
	b := newRun(dependsOn(store.WantSucceeded, a.ID))
	c := newRun(dependsOn(store.WantSucceeded, b.ID))
	last := newRun(dependsOn(store.WantEnded, c.ID))
	f.enqueue(last, c, b, a)
	for _, run := range []store.NewRun{a, b, c, last} {
		f.releaseAll()
		f.wantDue("in turn", run)
	}
}

func dependentLimited(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "customer", Kind: store.LimitSemaphore, Max: 1})
	source := newRun()
	f.enqueue(source)
	run := newRun(dependsOn(store.WantSucceeded, source.ID), func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "customer", Key: "7"}} })
	f.enqueue(run)
	f.wantAdmitted("while it waits for its source")
	f.ends(source.ID, store.Success)
	f.releaseAll()
	f.wantAdmitted("after its source", run)
}

func dependentExpires(_ *testing.T, f *fixture) {
	source := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.enqueue(source)
	dependent := newRun(dependsOn(store.WantSucceeded, source.ID), func(r *store.NewRun) { r.ExpiresAt = f.now().Add(time.Second) })
	f.enqueue(dependent)
	f.nothingDue("before")
	f.advance(2 * time.Second)
	_, claimed := f.claimOne(newWorker("w"))
	if claimed.ID != dependent.ID || !claimed.Expired {
		f.t.Errorf("claimed %+v, want the dependent, expired", claimed)
	}
}

func dependentRefused(t *testing.T, f *fixture) {
	source, unknown := newRun(), store.NewRunID()
	f.enqueue(source)
	beside := newRun()
	if _, err := f.store.Enqueue(f.ctx, beside, newRun(dependsOn(store.WantEnded, source.ID, unknown))); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown source: %v, want ErrNotFound", err)
	}
	if _, err := f.store.Run(f.ctx, beside.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a run beside it was stored: %v", err)
	}
	a, b := newRun(), newRun()
	dependsOn(store.WantEnded, b.ID)(&a)
	dependsOn(store.WantEnded, a.ID)(&b)
	self := newRun()
	dependsOn(store.WantEnded, self.ID)(&self)
	for what, runs := range map[string][]store.NewRun{
		"a cycle":   {a, b},
		"itself":    {self},
		"no source": {newRun(dependsOn(store.WantEnded))},
		"an end on dead": {newRun(func(r *store.NewRun) {
			r.DependsOn = []store.Condition{store.Condition{Want: store.WantEnded, Runs: []store.RunID{source.ID}}.CancelOnDead()}
		})},
		"an unknown want": {newRun(dependsOn(7, source.ID))},
		"at":              {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.At = time.Now().Add(time.Hour) })},
		"after":           {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.After = time.Hour })},
		"replace":         {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} })},
		"too many":        {newRun(dependsOn(store.WantEnded, make([]store.RunID, store.MaxSources+1)...))},
	} {
		if _, err := f.store.Enqueue(f.ctx, runs...); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

func dependentHeld(_ *testing.T, f *fixture) {
	source := newRun()
	f.enqueue(source)
	dependent := newRun(dependsOn(store.WantSucceeded, source.ID))
	failed := newRun(dependsOn(store.WantFailed, source.ID))
	f.enqueue(dependent, failed)
	f.ends(source.ID, store.Death)
	f.releaseAll()
	f.wantDue("the source is dead", failed)
	f.operate(store.RetryRuns, source.ID)
	f.releaseAll()
	f.wantDue("it is retried", source)
	f.releaseAll()
	f.wantDue("it has succeeded", dependent)
}

func dependentRetried(_ *testing.T, f *fixture) {
	source := newRun()
	f.enqueue(source)
	dependent := newRun(dependsOn(store.WantSucceeded, source.ID))
	f.enqueue(dependent)
	f.operate(store.CancelRuns, source.ID)
	f.releaseAll()
	f.wantState(dependent.ID, store.Cancelled, "the source was cancelled")
	f.operate(store.RetryRuns, dependent.ID)
	f.nothingDue("the source is cancelled still")
	f.releaseAll()
	f.wantState(dependent.ID, store.Cancelled, "its condition cannot be met")
	f.operate(store.RetryRuns, source.ID)
	f.operate(store.RetryRuns, dependent.ID)
	f.wantDue("both are retried", source)
	f.releaseAll()
	f.wantDue("the source has succeeded", dependent)
}

func dependentKeyed(t *testing.T, f *fixture) {
	source := newRun()
	f.enqueue(source)
	key := store.Key{Text: "order-7"}
	held := newRun(dependsOn(store.WantSucceeded, source.ID), func(r *store.NewRun) { r.Key = key })
	f.enqueue(held)
	key.Policy = store.KeyReplace
	replacing := newRun(func(r *store.NewRun) { r.Key = key })
	receipts, err := f.store.Enqueue(f.ctx, replacing)
	if err != nil || receipts[0].ID == held.ID {
		t.Errorf("a dependent was replaced: %+v, %v", receipts, err)
	}
}

func dependentKept(_ *testing.T, f *fixture) {
	early, source, other := newRun(), newRun(), newRun()
	f.enqueue(early, source, other)
	f.ends(early.ID, store.Success)
	dependent := newRun(dependsOn(store.WantSucceeded, early.ID, source.ID), dependsOn(store.WantEnded, other.ID))
	f.enqueue(dependent)
	f.releaseAll()
	f.ends(source.ID, store.Success)
	f.advance(time.Second)
	request := sweeper()
	request.Retention = time.Millisecond
	f.sweep(request)
	f.wantState(source.ID, store.Succeeded, "its dependent waits")
	f.wantState(early.ID, store.Succeeded, "it had ended before its dependent was stored")
	f.ends(other.ID, store.Success)
	f.releaseAll()
	f.wantDue("both have ended", dependent)
}
