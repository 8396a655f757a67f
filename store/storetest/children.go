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
		"a child is stored once, and its end releases its parent": childReleases,
		"a parent waits for the last of its children":             childrenLast,
		"the end of a child while its parent executes":            childWhileExecuting,
		"a run that is not its child is refused":                  childForeign,
		"children are cancelled with their parent":                childrenCancelled,
		"children of a parent that was deleted are cancelled":     childrenOfDeleted,
		"a child that may begin is cancelled with its parent":     childDoomed,
		"children of a dead parent continue":                      childrenOfDead,
		"a run that waits for several is due when one is there":   childOrInput,
		"a wait for a child that was left wakes its run no more":  childLeft,
		"the outcome of a run says when it has ended":             childOutcomes,
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

// waitForEither has a held run wait for a child and for an input, and returns the child.
func (f *fixture) waitForEither(worker store.WorkerID, holder store.Holder) store.NewRun {
	f.t.Helper()
	run := child("ship", func(r *store.NewRun) { r.After = time.Hour })
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
	other := child("other", func(r *store.NewRun) { r.After = time.Hour })
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
	ended, unfinished := child("ship"), child("ship", func(r *store.NewRun) { r.After = time.Hour })
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

// childDoomed sends a child what it waits for when its parent was cancelled: both are noticed.
func childDoomed(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	run := child("a")
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
