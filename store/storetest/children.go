package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func childTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a child is stored once, and its end releases its parent":  childReleases,
		"a parent waits for the last of its children":              childrenLast,
		"the end of a child while its parent executes":             childWhileExecuting,
		"a run that is not its child is refused":                   childForeign,
		"calls of several runs are stored together, or not at all": callsTogether,
		"calls that make no sense are refused":                     callsRefused,
		"children are cancelled with their parent":                 childrenCancelled,
		"children of a parent that was deleted are cancelled":      childrenOfDeleted,
		"a child that may begin is cancelled with its parent":      childDoomed,
		"children of a dead parent continue":                       childrenOfDead,
		"a run that waits for several is due when one is there":    childOrInput,
		"a wait for a child that was left wakes its run no more":   childLeft,
		"the outcome of a run says when it has ended":              childOutcomes,
	}
}

// call has a held run enqueue children, and begin to wait for them.
func (f *fixture) call(holder store.Holder, name string, children ...store.NewRun) {
	f.t.Helper()
	if err := f.store.Call(f.ctx, []store.Call{{Holder: holder, Name: name, Children: children}}); err != nil {
		f.t.Fatalf("Call: %v", err)
	}
}

// waitForChildren has a held run enqueue children, and wait for them.
func (f *fixture) waitForChildren(worker store.WorkerID, holder store.Holder, name string, children ...store.NewRun) {
	f.t.Helper()
	f.call(holder, name, children...)
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
}

func childReleases(t *testing.T, f *fixture) {
	worker, holder := f.held()
	run := newRun()
	f.waitForChildren(worker, holder, "ship", run)
	f.releaseAll()
	f.ends(run.ID, store.Success)
	f.releaseAll()
	claim, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run || claimed.Attempt != 1 {
		t.Errorf("claimed %+v", claimed)
	}
	holder.Claim = claim
	f.call(holder, "ship", run) // which changes nothing
	done := store.NewStep{Holder: holder, Name: "ship", Kind: store.StepDone, Value: []byte(`1`)}
	if verdicts, err := f.store.RecordSteps(f.ctx, []store.NewStep{done}); err != nil || verdicts[0] != store.StepStored {
		t.Errorf("the children's outcome: %v, %v", verdicts, err)
	}
}

func childrenLast(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	a, b := newRun(), newRun()
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
	run := newRun()
	f.call(holder, "ship", run)
	f.wantDue("the child", run)
	f.release()
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
	if result := f.release(store.Look{Run: holder.Run, Name: "ship", Kind: store.StepChildren}); result.Released != 1 {
		f.t.Errorf("the look released %d runs", result.Released)
	}
	f.claimOne(worker)
}

// waitForEither has a held run wait for a child and for an input, and returns the child.
func (f *fixture) waitForEither(worker store.WorkerID, holder store.Holder) store.NewRun {
	f.t.Helper()
	run := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput})
	f.waitForChildren(worker, holder, "ship", run)
	if result := f.release(eitherOf(holder.Run)...); result.Released != 0 {
		f.t.Errorf("released %d runs, and nothing is there", result.Released)
	}
	return run
}

func eitherOf(run store.RunID) []store.Look {
	return []store.Look{{Run: run, Name: "approved", Kind: store.StepInput}, {Run: run, Name: "ship", Kind: store.StepChildren}}
}

func childOrInput(t *testing.T, f *fixture) {
	worker, holder := f.held()
	run := f.waitForEither(worker, holder)
	f.send(approval(holder.Run, `true`))
	f.releaseAll()
	claim, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run {
		t.Fatalf("claimed %+v, want the parent, for the input", claimed)
	}
	holder.Claim = claim
	f.operate(store.CancelRuns, run.ID)
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
	f.release(eitherOf(holder.Run)[1])
	if _, claimed := f.claimOne(worker); claimed.ID != holder.Run {
		t.Errorf("claimed %+v, want the parent, for the end of its child", claimed)
	}
}

func childLeft(t *testing.T, f *fixture) {
	worker, holder := f.held()
	run := f.waitForEither(worker, holder)
	f.operate(store.CancelRuns, run.ID)
	f.releaseAll()
	claim, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run {
		t.Fatalf("claimed %+v, want the parent", claimed)
	}
	holder.Claim = claim
	other := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.waitForChildren(worker, holder, "other", other)
	for range 3 {
		result := f.release(eitherOf(holder.Run)[0], store.Look{Run: holder.Run, Name: "other", Kind: store.StepChildren})
		if result.Released != 0 {
			t.Fatalf("released %d runs: it does not wait for the child that has ended", result.Released)
		}
	}
	f.nothingDue("the child that it waits for has not ended")
	f.operate(store.CancelRuns, other.ID)
	f.releaseAll()
	if _, claimed := f.claimOne(worker); claimed.ID != holder.Run {
		t.Errorf("claimed %+v, want the parent", claimed)
	}
}

func childOutcomes(t *testing.T, f *fixture) {
	worker, holder := f.held()
	ended, unfinished := newRun(), newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.waitForChildren(worker, holder, "ship", ended, unfinished)
	f.ends(ended.ID, store.Success)
	outcomes, err := f.store.Outcomes(f.ctx, []store.RunID{ended.ID, unfinished.ID})
	if err != nil {
		t.Fatalf("Outcomes: %v", err)
	}
	record, err := f.store.Run(f.ctx, ended.ID)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if !outcomes[0].FinishedAt.Equal(*record.FinishedAt) || !outcomes[1].FinishedAt.IsZero() {
		t.Errorf("they have ended at %v and %v, want %v and never", outcomes[0].FinishedAt, outcomes[1].FinishedAt, record.FinishedAt)
	}
}

func childForeign(t *testing.T, f *fixture) {
	_, holder := f.held()
	foreign := newRun()
	f.enqueue(foreign)
	beside := newRun()
	call := store.Call{Holder: holder, Name: "ship", Children: []store.NewRun{beside, foreign}}
	if err := f.store.Call(f.ctx, []store.Call{call}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run that is another's: %v, want ErrConflict", err)
	}
	if _, err := f.store.Run(f.ctx, beside.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a child beside it was stored: %v", err)
	}
}

// callsTogether has two runs call in one call, and then one of them together with a run that is lost.
func callsTogether(t *testing.T, f *fixture) {
	worker, a := f.held()
	_, b := f.held()
	of := map[store.RunID]store.NewRun{a.Run: newRun(), b.Run: newRun()}
	call := func(holder store.Holder, name string, children ...store.NewRun) store.Call {
		return store.Call{Holder: holder, Name: name, Children: children}
	}
	if err := f.store.Call(f.ctx, []store.Call{call(a, "ship", of[a.Run]), call(b, "ship", of[b.Run])}); err != nil {
		t.Fatalf("Call: %v", err)
	}
	for _, holder := range []store.Holder{a, b} {
		found := f.steps(holder.Run)
		if len(found.Steps) != 1 || found.Steps[0].Kind != store.StepChildren || found.Steps[0].Tries != 1 || found.Steps[0].Name != "ship" {
			t.Errorf("recorded: %+v", found.Steps)
		}
		links, err := f.store.Links(f.ctx, of[holder.Run].ID)
		if err != nil || len(links.WaitedFor) != 1 || links.WaitedFor[0].Run != holder.Run {
			t.Errorf("the child of %s is waited for by %+v, %v", holder.Run, links.WaitedFor, err)
		}
	}
	f.settle(one(b.Claim, worker, b.Run, store.Outcome{Kind: store.Success}))
	beside, late := newRun(), newRun()
	if err := f.store.Call(f.ctx, []store.Call{call(a, "more", beside), call(b, "late", late)}); !errors.Is(err, lease.ErrLost) {
		t.Errorf("beside a run that is lost: %v, want ErrLost", err)
	}
	for _, run := range []store.NewRun{beside, late} {
		if _, err := f.store.Run(f.ctx, run.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a child was stored: %v", err)
		}
	}
	if found := f.steps(a.Run); len(found.Steps) != 1 {
		t.Errorf("recorded: %+v", found.Steps)
	}
}

func callsRefused(t *testing.T, f *fixture) {
	_, holder := f.held()
	run := newRun()
	for what, call := range map[string]store.Call{
		"no child":    {Name: "a"},
		"no name":     {Children: []store.NewRun{run}},
		"a key":       {Name: "a", Children: []store.NewRun{newRun(func(r *store.NewRun) { r.Key = store.Key{Text: "k"} })}},
		"a condition": {Name: "a", Children: []store.NewRun{newRun(dependsOn(store.WantEnded, holder.Run))}},
		"too many":    {Name: "a", Children: make([]store.NewRun, store.MaxSources+1)},
		"one twice":   {Name: "a", Children: []store.NewRun{run, run}},
	} {
		call.Holder = holder
		if err := f.store.Call(f.ctx, []store.Call{call}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

func childrenCancelled(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	pending := newRun(func(r *store.NewRun) { r.After = time.Hour })
	running := newRun()
	f.waitForChildren(worker, holder, "a", pending, running)
	claim, claimed := f.claimOne(worker)
	below := store.Holder{Run: claimed.ID, Claim: claim}
	grandchild := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.call(below, "b", grandchild)
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

// childDoomed sends a child what it waits for when its parent was cancelled: both are noticed.
func childDoomed(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := newRun()
	f.waitForChildren(worker, holder, "a", run)
	claim, claimed := f.claimOne(worker)
	f.park(worker, store.Holder{Run: claimed.ID, Claim: claim}, "approved")
	f.operate(store.CancelRuns, holder.Run)
	f.send(approval(run.ID, `1`))
	f.releaseAll()
	f.wantState(run.ID, store.Cancelled, "the parent was cancelled")
}

func childrenOfDeleted(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.waitForChildren(worker, holder, "a", run)
	f.operate(store.DeleteRuns, holder.Run)
	f.releaseAll()
	f.wantState(run.ID, store.Cancelled, "the parent was deleted")
}

func childrenOfDead(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.call(holder, "a", run)
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "broken"}))
	f.releaseAll()
	f.wantState(run.ID, store.Pending, "the parent is dead")
	f.operate(store.DeleteRuns, holder.Run)
	f.releaseAll()
	f.wantState(run.ID, store.Pending, "the dead parent was deleted")
}
