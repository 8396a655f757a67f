package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func batchOwned(t *testing.T, f *fixture) {
	_, stranger := f.held()
	worker, holder := f.held()
	b := newBatch(owned)
	for range 2 { // what is repeated adds nothing twice
		members := []store.NewRun{newRun(memberOf(b)), newRun(memberOf(b))}
		members[0].ID, members[1].ID = b.ID, holder.Run
		members[0].ID[15]++
		members[1].ID[15]++
		if _, err := f.store.EnqueueUnder(f.ctx, holder, members...); err != nil {
			t.Fatalf("EnqueueUnder: %v", err)
		}
	}
	f.releaseAll()
	if got := f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 2}, "its owner executes"); got.Closed || got.Owner == nil || *got.Owner != holder.Run {
		t.Errorf("the batch is %+v", got)
	}
	if _, err := f.store.EnqueueUnder(f.ctx, stranger, newRun(memberOf(b))); !errors.Is(err, store.ErrConflict) {
		t.Errorf("another handler adds to the batch: %v, want ErrConflict", err)
	}
	if _, err := f.store.AwaitBatch(f.ctx, holder, uuid.New(), "pages"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("wait for another batch: %v, want ErrNotFound", err)
	}
	zombie := store.Holder{Run: holder.Run, Claim: lease.ClaimID(uuid.New())}
	if _, err := f.store.AwaitBatch(f.ctx, zombie, b.ID, "pages"); !errors.Is(err, lease.ErrLost) {
		t.Errorf("a zombie waits: %v, want lease.ErrLost", err)
	}
	for range 2 {
		got, err := f.store.AwaitBatch(f.ctx, holder, b.ID, "pages")
		if err != nil || !got.Closed || got.Counts.Members != 2 {
			t.Fatalf("AwaitBatch: %+v, %v", got, err)
		}
	}
	f.beginWait(store.NewWait{Holder: holder, Name: "pages", Kind: store.StepChildren, Children: 1})
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}))
	f.release(store.Look{Run: holder.Run, Name: "pages", Kind: store.StepChildren})
	f.releaseAll()
	claim, claimed := f.claim(worker, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d runs, want the two members", len(claimed))
	}
	f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	again, parent := f.claimOne(worker)
	if parent.ID != holder.Run {
		t.Errorf("claimed %s, want the owner", parent.ID)
	}
	late := newRun(memberOf(b))
	if _, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: parent.ID, Claim: again}, late); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run for a batch that was waited for: %v, want ErrConflict", err)
	}
}

func batchOwnerEnds(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	b := newBatch(owned)
	member := newRun(memberOf(b))
	if _, err := f.store.EnqueueUnder(f.ctx, holder, member); err != nil {
		f.t.Fatalf("EnqueueUnder: %v", err)
	}
	f.ends(member.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 1, Succeeded: 1}, "its owner executes")
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 1, Succeeded: 1}, "its owner has ended")
}

func batchOwnerDead(t *testing.T, f *fixture) {
	worker, holder := f.held()
	b := newBatch(owned)
	member := newRun(memberOf(b))
	if _, err := f.store.EnqueueUnder(f.ctx, holder, member); err != nil {
		t.Fatalf("EnqueueUnder: %v", err)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "broken"}))
	f.releaseAll()
	f.ends(member.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 1, Succeeded: 1}, "its owner may be retried")
	f.operate(store.RetryRuns, holder.Run)
	claim, claimed := f.claimOne(worker)
	holder.Claim = claim
	second := newRun(memberOf(b), later)
	if _, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: claimed.ID, Claim: claim}, second); err != nil {
		t.Errorf("a retried owner adds a run: %v", err)
	}
	f.settle(one(claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "broken"}))
	f.operate(store.DeleteRuns, second.ID, holder.Run)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 1, Succeeded: 1}, "its owner was deleted")
}

func batchForeign(t *testing.T, f *fixture) {
	_, holder := f.held()
	foreign := newRun(later)
	f.enqueue(foreign)
	foreign.Batch = newBatch(owned)
	if _, err := f.store.EnqueueUnder(f.ctx, holder, foreign); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run that is no member: %v, want ErrConflict", err)
	}
}

func batchFailFast(t *testing.T, f *fixture) {
	b := newBatch(eagerly, open)
	bad, waiting := newRun(memberOf(b)), newRun(memberOf(b), later)
	fears := newRun(onBatch(store.WantFailed, b))
	f.enqueue(bad, waiting, fears)
	f.ends(bad.ID, store.Death)
	f.releaseAll()
	f.wantState(waiting.ID, store.Cancelled, "another member has failed")
	got := f.wantBatch(b, store.BatchCancelled, store.BatchCounts{Members: 2, Dead: 1, Cancelled: 1}, "one has failed")
	if reason := f.record(waiting.ID).Error; reason == nil || *reason != got.Reason || got.Reason == "" {
		t.Errorf("the member was cancelled because %v, the batch because %q", reason, got.Reason)
	}
	f.wantDue("one has failed", fears)
	if _, err := f.store.Enqueue(f.ctx, newRun(memberOf(b))); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run for a cancelled batch: %v, want ErrConflict", err)
	}
}

func batchTooLong(_ *testing.T, f *fixture) {
	b := newBatch(func(b *store.NewBatch) { b.EndsWithin = 10 * time.Minute })
	member := newRun(memberOf(b), later)
	f.enqueue(member)
	f.releaseAll()
	f.wantState(member.ID, store.Pending, "it has ten minutes")
	f.advance(10*time.Minute + time.Second)
	f.releaseAll()
	f.wantState(member.ID, store.Cancelled, "it took too long")
	f.wantBatch(b, store.BatchCancelled, store.BatchCounts{Members: 1, Cancelled: 1}, "it took too long")
}

func batchCancelled(t *testing.T, f *fixture) {
	b := newBatch()
	running, pending := newRun(memberOf(b)), newRun(memberOf(b), later)
	hopes := newRun(onBatch(store.WantSucceeded, b))
	f.enqueue(running, pending, hopes)
	worker := newWorker("w")
	claim, _ := f.claimOne(worker)
	for range 2 { // a repeat does nothing
		if err := f.store.CancelBatch(f.ctx, store.BatchCancel{ID: b.ID, Reason: "wrong file", By: "eva"}); err != nil {
			t.Fatalf("CancelBatch: %v", err)
		}
	}
	f.releaseAll()
	f.wantState(pending.ID, store.Cancelled, "its batch was cancelled")
	requests, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claim})
	if err != nil || len(requests) != 1 || requests[0].Run != running.ID || requests[0].Reason != "wrong file" {
		t.Errorf("requests %+v, %v", requests, err)
	}
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 2, Cancelled: 1}, "one executes")
	f.operate(store.RetryRuns, pending.ID)
	f.releaseAll()
	f.wantState(pending.ID, store.Cancelled, "it was retried, and its batch is being cancelled")
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 2, Cancelled: 1}, "one executes still")
	f.settle(one(claim, worker, running.ID, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantBatch(b, store.BatchCancelled, store.BatchCounts{Members: 2, Succeeded: 1, Cancelled: 1}, "it was cancelled")
	f.wantState(hopes.ID, store.Cancelled, "it was cancelled")
	page, err := f.store.Changes(f.ctx, store.ChangeFilter{Kind: "batch"})
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Actor != "eva" || page.Changes[0].Action != "cancel" || page.Changes[0].Subject != b.ID.String() {
		t.Errorf("changes %+v, %v", page, err)
	}
	if err := f.store.CancelBatch(f.ctx, store.BatchCancel{ID: uuid.New()}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("cancel no batch: %v", err)
	}
}

// batchOwnedByCondition has a handler make a batch of its own that a run waits for, and add nothing.
func batchOwnedByCondition(t *testing.T, f *fixture) {
	worker, holder := f.held()
	after := newRun(func(r *store.NewRun) {
		r.DependsOn = []store.Condition{{Want: store.WantEnded, Batches: []store.NewBatch{*newBatch(owned)}}}
	})
	if _, err := f.store.EnqueueUnder(f.ctx, holder, after); err != nil {
		t.Fatalf("EnqueueUnder: %v", err)
	}
	f.releaseAll()
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantDue("the owner has ended", after)
}

// batchRetriedLate has dead members retried after the other members of their cancelled batch were
// cancelled, while one is still executing.
func batchRetriedLate(t *testing.T, f *fixture) {
	b := newBatch(open)
	dead, other, running := newRun(memberOf(b)), newRun(memberOf(b)), newRun(memberOf(b))
	f.enqueue(dead, other)
	f.ends(dead.ID, store.Death)
	f.ends(other.ID, store.Death)
	f.enqueue(running)
	worker := newWorker("w")
	claim, _ := f.claimOne(worker)
	if err := f.store.CancelBatch(f.ctx, store.BatchCancel{ID: b.ID, Reason: "wrong file"}); err != nil {
		t.Fatalf("CancelBatch: %v", err)
	}
	f.releaseAll()
	f.operate(store.RetryRuns, dead.ID)
	f.operate(store.DeleteRuns, other.ID)
	f.releaseAll()
	f.wantState(dead.ID, store.Cancelled, "its batch was cancelled before it was retried")
	if reason := f.record(dead.ID).Error; reason == nil || *reason != "wrong file" {
		t.Errorf("it was cancelled because %v", reason)
	}
	f.settle(one(claim, worker, running.ID, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantBatch(b, store.BatchCancelled, store.BatchCounts{Members: 2, Succeeded: 1, Cancelled: 1}, "the last has ended")
	f.operate(store.RetryRuns, dead.ID)
	f.releaseAll()
	f.wantState(dead.ID, store.Pending, "its batch had ended before it was retried")
}
