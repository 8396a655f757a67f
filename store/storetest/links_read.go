package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func linkReadTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"links say what waits for what":                                     linksSay,
		"more links than are read are counted, and the parent comes first":  linksCounted,
		"runs are found by their parent, and by the run that they wait for": linksFilter,
		"a dead run that holds its dependents is found":                     linksHold,
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
	outcomes, err := f.store.Outcomes(f.ctx, []store.RunID{store.NewRunID(), source.ID, source.ID})
	if err != nil || len(outcomes) != 3 || !outcomes[2].Found || outcomes[0].Found || !outcomes[1].Found || outcomes[1].State != store.Succeeded || outcomes[1].Job != "mail" {
		t.Errorf("outcomes %+v, %v", outcomes, err)
	}
}

func linksCounted(t *testing.T, f *fixture) {
	const many = store.MaxLinks + 50
	worker, holder := f.held()
	source := newRun()
	f.waitForChildren(worker, holder, "ship", source)
	runs := make([]store.NewRun, many)
	for i := range runs {
		runs[i] = newRun(dependsOn(store.WantSucceeded, source.ID))
	}
	f.enqueue(runs...)
	links, err := f.store.Links(f.ctx, source.ID)
	if err != nil || len(links.WaitedFor) != store.MaxLinks || links.WaitedFor[0].Run != holder.Run || links.WaitedFor[0].Name != "ship" {
		t.Fatalf("%d wait, the first is %+v, %v", len(links.WaitedFor), links.WaitedFor[:1], err)
	}
	if want := (store.Count{N: many + 1}); links.Waiters != want || links.Sources != (store.Count{}) {
		t.Errorf("counted %+v and %+v, want %+v and none", links.Waiters, links.Sources, want)
	}
	if links, err = f.store.Links(f.ctx, runs[0].ID); err != nil || links.Sources.N != 1 || links.Waiters.N != 0 {
		t.Errorf("a dependent has %+v, %v", links, err)
	}
}

func linksFilter(t *testing.T, f *fixture) {
	worker, holder := f.held()
	a, b := newRun(), newRun(func(r *store.NewRun) { r.Job = "other" })
	f.waitForChildren(worker, holder, "ship", a, b)
	beside := newRun()
	f.enqueue(beside)
	x, y := newRun(dependsOn(store.WantSucceeded, a.ID)), newRun(dependsOn(store.WantFailed, beside.ID, a.ID), dependsOn(store.WantEnded, a.ID))
	f.enqueue(x, y)
	f.wantFound("children", store.Filter{Parent: holder.Run}, b.ID, a.ID)
	f.wantFound("children of a job", store.Filter{Parent: holder.Run, Jobs: []string{"other"}}, b.ID)
	f.wantFound("children, a page at a time", store.Filter{Parent: holder.Run, Limit: 1}, b.ID, a.ID)
	f.wantFound("children of a run without any", store.Filter{Parent: beside.ID})
	f.wantFound("children of a run that has dependents", store.Filter{Parent: a.ID})
	f.wantFound("dependents", store.Filter{WaitingOn: a.ID}, y.ID, x.ID)
	f.wantFound("dependents of a parent", store.Filter{WaitingOn: holder.Run})
	f.wantFound("children with a key", store.Filter{Parent: holder.Run, Key: "none"})
	f.ends(a.ID, store.Success)
	f.releaseAll()
	f.wantFound("dependents that were released", store.Filter{WaitingOn: a.ID}, y.ID)
	f.wantFound("children that have ended", store.Filter{Parent: holder.Run, States: []store.State{store.Succeeded}}, a.ID)
	f.operate(store.CancelRuns, y.ID)
	f.wantFound("dependents that were cancelled", store.Filter{WaitingOn: beside.ID})
	for _, bad := range []store.Filter{{Parent: a.ID, WaitingOn: b.ID}, {Parent: a.ID, IDs: []store.RunID{b.ID}}, {WaitingOn: a.ID, IDs: []store.RunID{}}} {
		if _, err := f.store.Runs(f.ctx, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v answered %v, want ErrInvalid", bad, err)
		}
	}
}

// wantFound compares the runs that a filter lists, and counts.
func (f *fixture) wantFound(what string, filter store.Filter, want ...store.RunID) {
	f.t.Helper()
	got, _ := f.pages(filter)
	if !sameRuns(got, want) {
		f.t.Errorf("%s: listed %v, want %v", what, got, want)
	}
	counts, err := f.store.CountMatching(f.ctx, filter)
	if err != nil {
		f.t.Fatalf("%s: CountMatching: %v", what, err)
	}
	var n int64
	for _, count := range counts {
		n += count.N
	}
	if n != int64(len(want)) {
		f.t.Errorf("%s: counted %d, want %d", what, n, len(want))
	}
}

func linksHold(t *testing.T, f *fixture) {
	wantHolds := func(when string, want ...store.Hold) {
		t.Helper()
		holds, err := f.store.Holds(f.ctx)
		if err != nil || len(holds) != len(want) {
			t.Fatalf("%s: held by %+v, %v, want %+v", when, holds, err, want)
		}
		for i := range want {
			if got := holds[i]; got.Run != want[i].Run || got.Job != "mail" || got.Dependents != want[i].Dependents || got.DeadSince.Before(f.now().Add(-time.Hour)) {
				t.Errorf("%s: held by %+v, want %+v", when, got, want[i])
			}
		}
	}
	plain, source, other := newRun(), newRun(), newRun()
	f.enqueue(plain, source, other)
	f.ends(plain.ID, store.Death)
	wantHolds("no run waits for another")
	held := []store.NewRun{newRun(dependsOn(store.WantSucceeded, source.ID)), newRun(dependsOn(store.WantSucceeded, source.ID, other.ID)),
		newRun(dependsOn(store.WantEnded, source.ID))}
	f.enqueue(held...)
	f.releaseAll()
	wantHolds("the sources have not ended")
	f.ends(source.ID, store.Death)
	f.releaseAll()
	wantHolds("a source is dead", store.Hold{Run: source.ID, Dependents: store.Count{N: 2}})
	f.advance(time.Second)
	f.ends(other.ID, store.Death)
	f.releaseAll()
	wantHolds("both sources are dead", store.Hold{Run: other.ID, Dependents: store.Count{N: 1}}, store.Hold{Run: source.ID, Dependents: store.Count{N: 2}})
	f.operate(store.CancelRuns, held[1].ID)
	wantHolds("a dependent is cancelled", store.Hold{Run: source.ID, Dependents: store.Count{N: 1}})
	f.operate(store.AcknowledgeRuns, source.ID)
	wantHolds("the source is acknowledged")
	f.operate(store.RetryRuns, source.ID)
	wantHolds("the source is retried")
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
