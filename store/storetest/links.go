package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func linkTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a dependent is due when its conditions are met":          dependentTable,
		"a dependent of two waits for both":                       dependentOfTwo,
		"a dependent of the failure of any waits for one":         dependentOfAny,
		"a dependent of a run that is executing":                  dependentOfExecuting,
		"a dependent of runs that have ended is due immediately":  dependentOfEnded,
		"a chain is stored in one call":                           dependentChain,
		"a limited dependent is released into its line":           dependentLimited,
		"a dependent that still waits expires":                    dependentExpires,
		"dependents that no engine could release are refused":     dependentRefused,
		"a dead source holds, and its retry lets go":              dependentHeld,
		"a cancelled dependent that is retried waits again":       dependentRetried,
		"a run that depends on others is not replaced":            dependentKeyed,
		"retention keeps what an unfinished run waits for":        dependentKept,
		"all dependents of one run are released":                  dependentMany,
		"every dependent of runs that end together is released":   dependentRaces,
		"links say what waits for what":                           linksSay,
		"a child is stored once, and its end releases its parent": childReleases,
		"a parent waits for the last of its children":             childrenLast,
		"the end of a child while its parent executes":            childWhileExecuting,
		"a run that is not its child is refused":                  childForeign,
		"children are cancelled with their parent":                childrenCancelled,
		"children of a parent that was deleted are cancelled":     childrenOfDeleted,
		"children of a dead parent go on":                         childrenOfDead,
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

// ends settles a run, which is claimed alone.
func (f *fixture) ends(id store.RunID, kind store.OutcomeKind) {
	f.t.Helper()
	worker := newWorker("w")
	for range 100 {
		claim, claimed := f.claimOne(worker)
		if claimed.ID == id {
			f.settle(one(claim, worker, id, store.Outcome{Kind: kind, Error: "broken"}))
			return
		}
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: store.HandedBack}))
	}
	f.t.Fatalf("run %s is not due", id)
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
		"succeeded": {store.WantSucceeded: due, store.WantEnded: due, store.WantFailed: cancelled},
		"dead":      {store.WantSucceeded: waits, store.WantEnded: due, store.WantFailed: due},
		"cancelled": {store.WantSucceeded: cancelled, store.WantEnded: due, store.WantFailed: due},
		"deleted":   {store.WantSucceeded: cancelled, store.WantEnded: due, store.WantFailed: due},
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
	<-time.After(1100 * time.Millisecond)
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
		"a cycle":         {a, b},
		"itself":          {self},
		"no source":       {newRun(dependsOn(store.WantEnded))},
		"an unknown want": {newRun(dependsOn(7, source.ID))},
		"at":              {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.At = time.Now().Add(time.Hour) })},
		"after":           {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.After = time.Hour })},
		"replace":         {newRun(dependsOn(store.WantEnded, source.ID), func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} })},
		"too many":        {newRun(dependsOn(store.WantEnded, make([]store.RunID, store.MaxSources+1)...))},
		"a keyed child":   {newRun(func(r *store.NewRun) { r.ChildOf, r.Key = "x", store.Key{Text: "k"} })},
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
	source, other := newRun(), newRun()
	f.enqueue(source, other)
	dependent := newRun(dependsOn(store.WantSucceeded, source.ID), dependsOn(store.WantEnded, other.ID))
	f.enqueue(dependent)
	f.releaseAll()
	f.ends(source.ID, store.Success)
	<-time.After(20 * time.Millisecond)
	request := sweeper()
	request.Retention = time.Millisecond
	f.sweep(request)
	f.wantState(source.ID, store.Succeeded, "its dependent waits")
	f.ends(other.ID, store.Success)
	f.releaseAll()
	f.wantDue("both have ended", dependent)
}

func dependentMany(t *testing.T, f *fixture) {
	const many = 1100
	source := newRun()
	f.enqueue(source)
	runs := make([]store.NewRun, many)
	for i := range runs {
		runs[i] = newRun(dependsOn(store.WantSucceeded, source.ID))
	}
	f.enqueue(runs...)
	f.ends(source.ID, store.Success)
	f.releaseAll()
	executed := 0
	worker := newWorker("w")
	for {
		claim, claimed := f.claim(worker, 500)
		if len(claimed) == 0 {
			break
		}
		executed += len(claimed)
		f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Success}))
	}
	if executed != many {
		t.Errorf("%d of %d dependents were released", executed, many)
	}
}

func dependentRaces(t *testing.T, f *fixture) {
	const pairs = 40
	var sources, dependents []store.NewRun
	for range pairs {
		a, b := newRun(), newRun()
		sources = append(sources, a, b)
		dependents = append(dependents, newRun(dependsOn(store.WantSucceeded, a.ID, b.ID)))
	}
	f.enqueue(sources...)
	var enders sync.WaitGroup
	stored := make(chan struct{})
	enders.Go(func() {
		defer close(stored)
		for i := range dependents {
			if _, err := f.store.Enqueue(f.ctx, dependents[i]); err != nil {
				t.Errorf("Enqueue: %v", err)
			}
		}
	})
	var mu sync.Mutex
	begun := map[store.RunID]int{}
	total := 0
	for range 4 {
		enders.Go(func() {
			worker := newWorker("w")
			for end := time.Now().Add(patience); time.Now().Before(end); {
				claim, claimed := f.claim(worker, 2)
				mu.Lock()
				for i := range claimed {
					begun[claimed[i].ID]++
					total++
				}
				done := total >= 3*pairs
				mu.Unlock()
				if len(claimed) > 0 {
					f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Success}))
				}
				if _, err := f.store.Release(context.WithoutCancel(f.ctx), store.ReleaseRequest{Limit: 100}); err != nil {
					t.Errorf("Release: %v", err)
				}
				if done {
					return
				}
			}
		})
	}
	enders.Wait()
	for i := range dependents {
		if begun[dependents[i].ID] != 1 {
			t.Errorf("dependent %d began %d times", i, begun[dependents[i].ID])
		}
	}
}

func linksSay(t *testing.T, f *fixture) {
	source := newRun()
	f.enqueue(source)
	dependent := newRun(dependsOn(store.WantSucceeded, source.ID))
	f.enqueue(dependent)
	links, err := f.store.Links(f.ctx, dependent.ID)
	want := store.Link{Run: source.ID, Job: "mail", Found: true, Want: store.WantSucceeded}
	if err != nil || len(links.WaitsFor) != 1 || links.WaitsFor[0] != want || len(links.WaitedFor) != 0 {
		t.Errorf("the dependent has %+v, %v", links, err)
	}
	if links, err = f.store.Links(f.ctx, source.ID); err != nil || len(links.WaitedFor) != 1 || links.WaitedFor[0].Run != dependent.ID {
		t.Errorf("the source has %+v, %v", links, err)
	}
	f.ends(source.ID, store.Success)
	f.releaseAll()
	if links, err = f.store.Links(f.ctx, dependent.ID); err != nil || !links.WaitsFor[0].Met || links.WaitsFor[0].State != store.Succeeded {
		t.Errorf("after it has ended: %+v, %v", links, err)
	}
	outcomes, err := f.store.Outcomes(f.ctx, []store.RunID{store.NewRunID(), source.ID})
	if err != nil || outcomes[0].Found || !outcomes[1].Found || outcomes[1].State != store.Succeeded || outcomes[1].Job != "mail" {
		t.Errorf("outcomes %+v, %v", outcomes, err)
	}
}

// child makes a run that a handler waits for under a name.
func child(name string, changes ...func(*store.NewRun)) store.NewRun {
	return newRun(append(changes, func(r *store.NewRun) { r.ChildOf = name })...)
}

// waitForChildren has a held run enqueue children, and wait for them.
func (f *fixture) waitForChildren(worker store.WorkerID, holder store.Holder, name string, children ...store.NewRun) {
	f.t.Helper()
	if _, err := f.store.EnqueueUnder(f.ctx, holder, children...); err != nil {
		f.t.Fatalf("EnqueueUnder: %v", err)
	}
	f.beginWait(store.NewWait{Holder: holder, Name: name, Kind: store.StepChildren, Children: len(children)})
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
}

func childReleases(t *testing.T, f *fixture) {
	worker, holder := f.held()
	run := child("ship")
	f.waitForChildren(worker, holder, "ship", run)
	f.releaseAll()
	f.ends(run.ID, store.Success)
	f.releaseAll()
	claim, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run || claimed.Attempt != 1 {
		t.Errorf("claimed %+v", claimed)
	}
	holder.Claim = claim
	receipts, err := f.store.EnqueueUnder(f.ctx, holder, run)
	if err != nil || !receipts[0].Existing {
		t.Errorf("stored again: %+v, %v", receipts, err)
	}
	done := store.NewStep{Holder: holder, Name: "ship", Kind: store.StepDone, Value: []byte(`1`)}
	if verdicts, err := f.store.RecordSteps(f.ctx, []store.NewStep{done}); err != nil || verdicts[0] != store.StepStored {
		t.Errorf("the children's outcome: %v, %v", verdicts, err)
	}
}

func childrenLast(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	a, b := child("tools"), child("tools")
	f.waitForChildren(worker, holder, "tools", a, b)
	f.ends(b.ID, store.Death)
	f.releaseAll()
	f.wantDue("one is left", a)
	f.release(store.Look{Run: holder.Run, Name: "tools", Kind: store.StepChildren})
	f.releaseAll()
	_, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run {
		f.t.Errorf("claimed %+v, want the parent", claimed)
	}
}

func childWhileExecuting(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := child("ship")
	if _, err := f.store.EnqueueUnder(f.ctx, holder, run); err != nil {
		f.t.Fatalf("EnqueueUnder: %v", err)
	}
	f.wantDue("the child", run)
	f.release()
	f.beginWait(store.NewWait{Holder: holder, Name: "ship", Kind: store.StepChildren, Children: 1})
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
	if result := f.release(store.Look{Run: holder.Run, Name: "ship", Kind: store.StepChildren}); result.Released != 1 {
		f.t.Errorf("the look released %d runs", result.Released)
	}
	f.claimOne(worker)
}

func childForeign(t *testing.T, f *fixture) {
	_, holder := f.held()
	foreign := newRun()
	f.enqueue(foreign)
	beside := child("ship")
	taken := foreign
	taken.ChildOf = "ship"
	if _, err := f.store.EnqueueUnder(f.ctx, holder, beside, taken); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run that is another's: %v, want ErrConflict", err)
	}
	if _, err := f.store.Run(f.ctx, beside.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a child beside it was stored: %v", err)
	}
}

func childrenCancelled(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	pending := child("a", func(r *store.NewRun) { r.After = time.Hour })
	running := child("a")
	f.waitForChildren(worker, holder, "a", pending, running)
	claim, claimed := f.claimOne(worker)
	below := store.Holder{Run: claimed.ID, Claim: claim}
	grandchild := child("b", func(r *store.NewRun) { r.After = time.Hour })
	if _, err := f.store.EnqueueUnder(f.ctx, below, grandchild); err != nil {
		f.t.Fatalf("EnqueueUnder: %v", err)
	}
	f.operate(store.CancelRuns, holder.Run)
	f.releaseAll()
	f.wantState(pending.ID, store.Cancelled, "the parent was cancelled")
	requests, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claim})
	if err != nil || len(requests) != 1 || requests[0].Run != running.ID {
		f.t.Errorf("requests %+v, %v", requests, err)
	}
	f.settle(one(claim, worker, running.ID, store.Outcome{Kind: store.Cancellation, Error: "as requested"}))
	f.releaseAll()
	f.wantState(grandchild.ID, store.Cancelled, "its parent was cancelled")
}

func childrenOfDeleted(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := child("a", func(r *store.NewRun) { r.After = time.Hour })
	f.waitForChildren(worker, holder, "a", run)
	f.operate(store.DeleteRuns, holder.Run)
	f.releaseAll()
	f.wantState(run.ID, store.Cancelled, "the parent was deleted")
}

func childrenOfDead(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := child("a", func(r *store.NewRun) { r.After = time.Hour })
	if _, err := f.store.EnqueueUnder(f.ctx, holder, run); err != nil {
		f.t.Fatalf("EnqueueUnder: %v", err)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "broken"}))
	f.releaseAll()
	f.wantState(run.ID, store.Pending, "the parent is dead")
	f.operate(store.DeleteRuns, holder.Run)
	f.releaseAll()
	f.wantState(run.ID, store.Pending, "the dead parent was deleted")
}
