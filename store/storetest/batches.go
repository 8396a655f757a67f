package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func batchTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a batch counts its members":                                batchCounts,
		"a dependent of a batch is due when its condition is met":   batchTable,
		"an empty batch succeeds":                                   batchEmpty,
		"an open batch ends when it was closed":                     batchOpen,
		"a batch that is never closed fails":                        batchNeverClosed,
		"a member that adds another one and ends is no end":         batchMemberAdds,
		"a dead member that is retried reopens its batch":           batchRetried,
		"a deleted member never belonged to its batch":              batchDeleted,
		"fail fast cancels the other members":                       batchFailFast,
		"a batch that takes too long is cancelled":                  batchTooLong,
		"a cancelled batch cancels its members":                     batchCancelled,
		"a run for a batch that takes none is refused":              batchRefused,
		"a repeated enqueue is counted once":                        batchRepeated,
		"a handler waits for its batch":                             batchOwned,
		"a batch is closed with its owner":                          batchOwnerEnds,
		"a batch that only a condition names closes with its owner": batchOwnedByCondition,
		"a dead owner keeps its batch open":                         batchOwnerDead,
		"a run that is no member is not taken for one":              batchForeign,
		"retention keeps the members of a batch":                    batchKept,
		"members and batches are listed":                            batchListed,
		"batches of members that end together end once":             batchRaces,
		"a member that is retried is cancelled with its batch":      batchRetriedLate,
		"runs are found by their batch":                             batchFilter,
	}
}

func newBatch(changes ...func(*store.NewBatch)) *store.NewBatch {
	b := &store.NewBatch{ID: store.NewRunID(), Name: "pages"}
	for _, change := range changes {
		change(b)
	}
	return b
}

func open(b *store.NewBatch)    { b.OpenFor = time.Hour }
func owned(b *store.NewBatch)   { b.Owned = true }
func eagerly(b *store.NewBatch) { b.FailFast = true }

func memberOf(b *store.NewBatch) func(*store.NewRun) { return func(r *store.NewRun) { r.Batch = b } }

func later(r *store.NewRun) { r.After = time.Hour }

func onBatch(want store.Want, b *store.NewBatch) func(*store.NewRun) {
	return func(r *store.NewRun) {
		r.DependsOn = append(r.DependsOn, store.Condition{Want: want, Batches: []store.NewBatch{*b}})
	}
}

func (f *fixture) batch(id store.BatchID) store.Batch {
	f.t.Helper()
	b, err := f.store.Batch(f.ctx, id)
	if err != nil {
		f.t.Fatalf("Batch: %v", err)
	}
	return b
}

func (f *fixture) wantBatch(b *store.NewBatch, state store.BatchState, counts store.BatchCounts, when string) store.Batch {
	f.t.Helper()
	got := f.batch(b.ID)
	if got.State != state || got.Counts != counts {
		f.t.Errorf("%s: the batch is %s with %+v, want %s with %+v", when, got.State, got.Counts, state, counts)
	}
	if ended := state != store.BatchRunning; ended && got.EndedAt == nil {
		f.t.Errorf("%s: the batch is %s, and has no instant of its end", when, got.State)
	}
	return got
}

func batchCounts(_ *testing.T, f *fixture) {
	b := newBatch()
	x, y, z := newRun(memberOf(b)), newRun(memberOf(b)), newRun(memberOf(b))
	f.enqueue(x, y, z, newRun(later))
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 3}, "enqueued")
	f.ends(x.ID, store.Success)
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 3, Succeeded: 1}, "not yet released")
	f.ends(y.ID, store.Death)
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 3, Succeeded: 1, Dead: 1}, "one is left")
	f.operate(store.CancelRuns, z.ID)
	f.releaseAll()
	got := f.wantBatch(b, store.BatchFailed, store.BatchCounts{Members: 3, Succeeded: 1, Dead: 1, Cancelled: 1}, "all have ended")
	if got.FailedAt == nil || got.EndedAt.Before(*got.FailedAt) || !got.Closed || got.Name != "pages" || got.Owner != nil {
		f.t.Errorf("the batch is %+v", got)
	}
}

func batchTable(t *testing.T, f *fixture) {
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
		"deleted":   {store.WantSucceeded: due, store.WantEnded: due, store.WantFailed: cancelled},
	} {
		for want, fate := range becomes {
			when := "a member " + way + ", wants " + want.String()
			b := newBatch()
			member, other := newRun(memberOf(b)), newRun(memberOf(b))
			dependent := newRun(onBatch(want, b))
			f.enqueue(member, other, dependent)
			f.ends(other.ID, store.Success)
			f.releaseAll()
			f.wantState(dependent.ID, store.Pending, "before")
			f.nothingDueBut(member.ID)
			ways[way](member.ID)
			f.releaseAll()
			switch fate {
			case due:
				f.wantDue(when, dependent)
			case waits:
				f.nothingDue(when)
				f.wantState(dependent.ID, store.Pending, when)
				f.operate(store.CancelRuns, dependent.ID)
			default:
				f.wantState(dependent.ID, store.Cancelled, when)
				if reason := f.record(dependent.ID).Error; reason == nil || *reason == "" {
					t.Errorf("%s: no reason", when)
				}
			}
		}
	}
}

// nothingDueBut hands back what is due, which must be one run.
func (f *fixture) nothingDueBut(id store.RunID) {
	f.t.Helper()
	worker := newWorker("w")
	claim, claimed := f.claim(worker, 100)
	if len(claimed) != 1 || claimed[0].ID != id {
		f.t.Errorf("due are %+v, want only %s", claimed, id)
	}
	f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.HandedBack}))
}

func batchEmpty(_ *testing.T, f *fixture) {
	b := newBatch()
	dependent := newRun(onBatch(store.WantSucceeded, b))
	f.enqueue(dependent)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{}, "it has no members")
	f.wantDue("an empty batch", dependent)
}

func batchOpen(t *testing.T, f *fixture) {
	b := newBatch(open)
	first, dependent := newRun(memberOf(b)), newRun(onBatch(store.WantEnded, b))
	f.enqueue(first, dependent)
	f.ends(first.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 1, Succeeded: 1}, "it is open")
	f.nothingDue("it is open")
	second := newRun(memberOf(b))
	f.enqueue(second)
	for range 2 { // a repeat does nothing
		if err := f.store.CloseBatch(f.ctx, store.BatchClose{ID: b.ID, By: "ada"}); err != nil {
			t.Fatalf("CloseBatch: %v", err)
		}
	}
	if _, err := f.store.Enqueue(f.ctx, newRun(memberOf(b))); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run for a closed batch: %v, want ErrConflict", err)
	}
	f.wantBatchAudited(b.ID, "ada", "close")
	f.releaseAll()
	f.ends(second.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 2, Succeeded: 2}, "it is closed")
	f.wantDue("it is closed", dependent)
	if err := f.store.CloseBatch(f.ctx, store.BatchClose{ID: uuid.New()}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("close no batch: %v", err)
	}
}

func batchNeverClosed(t *testing.T, f *fixture) {
	b := newBatch(open)
	member := newRun(memberOf(b))
	hopes, fears := newRun(onBatch(store.WantSucceeded, b)), newRun(onBatch(store.WantFailed, b))
	f.enqueue(member, hopes, fears)
	f.ends(member.ID, store.Success)
	f.releaseAll()
	if result := f.release(); result.Next < 0 || result.Next > time.Hour {
		t.Errorf("the next release is in %v, want within an hour", result.Next)
	}
	f.advance(time.Hour + time.Second)
	f.releaseAll()
	got := f.wantBatch(b, store.BatchCancelled, store.BatchCounts{Members: 1, Succeeded: 1}, "it was never closed")
	if got.Reason == "" || got.FailedAt == nil || !got.Closed {
		t.Errorf("the batch is %+v", got)
	}
	f.wantState(hopes.ID, store.Cancelled, "it may not be whole")
	f.wantDue("it has failed", fears)
}

func batchMemberAdds(t *testing.T, f *fixture) {
	b := newBatch()
	first, dependent := newRun(memberOf(b)), newRun(onBatch(store.WantSucceeded, b))
	f.enqueue(first, dependent)
	f.releaseAll()
	worker := newWorker("w")
	claim, claimed := f.claimOne(worker)
	second := newRun(memberOf(&store.NewBatch{Holders: true}))
	if _, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: claimed.ID, Claim: claim}, second); err != nil {
		t.Fatalf("a member adds a run: %v", err)
	}
	if !claimed.Linked {
		t.Errorf("the claim does not say that the run's end concerns others")
	}
	f.settle(one(claim, worker, first.ID, store.Outcome{Kind: store.Success}))
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 2, Succeeded: 1}, "one was added")
	f.ends(second.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 2, Succeeded: 2}, "both have ended")
	f.wantDue("both have ended", dependent)
	_, alone := f.held()
	if _, err := f.store.EnqueueUnder(f.ctx, alone, newRun(memberOf(&store.NewBatch{Holders: true}))); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a run that is no member adds one: %v, want ErrConflict", err)
	}
}

func batchRetried(_ *testing.T, f *fixture) {
	b := newBatch()
	member := newRun(memberOf(b))
	hopes, ends := newRun(onBatch(store.WantSucceeded, b)), newRun(onBatch(store.WantEnded, b))
	f.enqueue(member, hopes, ends)
	f.ends(member.ID, store.Death)
	f.releaseAll()
	f.wantDue("the batch has ended", ends)
	first := f.wantBatch(b, store.BatchFailed, store.BatchCounts{Members: 1, Dead: 1}, "dead")
	f.operate(store.RetryRuns, member.ID)
	f.releaseAll()
	again := f.batch(b.ID)
	if again.State != store.BatchRunning || again.Counts != (store.BatchCounts{Members: 1}) || again.EndedAt == nil || !again.EndedAt.Equal(*first.EndedAt) {
		f.t.Errorf("a member is retried: the batch is %+v", again)
	}
	f.wantState(hopes.ID, store.Pending, "a dead member holds")
	f.ends(member.ID, store.Success)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 1, Succeeded: 1}, "the retry has succeeded")
	f.wantDue("the retry has succeeded", hopes)
	f.nothingDue("what was released stays so")
}

func batchDeleted(_ *testing.T, f *fixture) {
	b := newBatch()
	x, y := newRun(memberOf(b)), newRun(memberOf(b), later)
	f.enqueue(x, y)
	f.ends(x.ID, store.Death)
	f.releaseAll()
	f.operate(store.DeleteRuns, x.ID)
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 1}, "a dead member was deleted")
	f.operate(store.DeleteRuns, y.ID)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{}, "all were deleted")
}

func batchRefused(t *testing.T, f *fixture) {
	closed := newBatch()
	f.enqueue(newRun(memberOf(closed)))
	beside := newRun()
	for what, refused := range map[string]struct {
		runs []store.NewRun
		err  error
	}{
		"closed":     {[]store.NewRun{beside, newRun(memberOf(closed))}, store.ErrConflict},
		"unknown":    {[]store.NewRun{beside, newRun(memberOf(&store.NewBatch{ID: store.NewRunID()}))}, store.ErrNotFound},
		"condition":  {[]store.NewRun{beside, newRun(onBatch(store.WantEnded, &store.NewBatch{ID: store.NewRunID()}))}, store.ErrNotFound},
		"without id": {[]store.NewRun{beside, newRun(memberOf(&store.NewBatch{Name: "x"}))}, store.ErrInvalid},
		"NUL":        {[]store.NewRun{beside, newRun(memberOf(newBatch(func(b *store.NewBatch) { b.Name = "a\x00" })))}, store.ErrInvalid},
		"no text":    {[]store.NewRun{beside, newRun(memberOf(newBatch(func(b *store.NewBatch) { b.Name = "a\xff" })))}, store.ErrInvalid},
		"long name":  {[]store.NewRun{beside, newRun(memberOf(newBatch(func(b *store.NewBatch) { b.Name = strings.Repeat("a", 10<<20) })))}, store.ErrInvalid},
		"control":    {[]store.NewRun{beside, newRun(memberOf(newBatch(func(b *store.NewBatch) { b.Name = "a\x1b[31m" })))}, store.ErrInvalid},
		"past":       {[]store.NewRun{beside, newRun(memberOf(newBatch(func(b *store.NewBatch) { b.EndsWithin = -1 })))}, store.ErrInvalid},
		"holders":    {[]store.NewRun{beside, newRun(memberOf(&store.NewBatch{Holders: true}))}, store.ErrConflict},
	} {
		if _, err := f.store.Enqueue(f.ctx, refused.runs...); !errors.Is(err, refused.err) {
			t.Errorf("%s: %v, want %v", what, err, refused.err)
		}
	}
	if _, err := f.store.Run(f.ctx, beside.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a run beside them was stored: %v", err)
	}
}

func batchRepeated(t *testing.T, f *fixture) {
	b := newBatch()
	x, y := newRun(memberOf(b)), newRun(memberOf(b))
	f.enqueue(x, y)
	if receipts, err := f.store.Enqueue(f.ctx, x, y); err != nil || !receipts[0].Existing || !receipts[1].Existing {
		t.Fatalf("enqueued again: %+v, %v", receipts, err)
	}
	f.releaseAll()
	f.wantBatch(b, store.BatchRunning, store.BatchCounts{Members: 2}, "enqueued twice")
	worker := newWorker("w")
	claim, claimed := f.claim(worker, 10)
	settlement := all(claim, worker, claimed, store.Outcome{Kind: store.Success})
	f.settle(settlement)
	f.settle(settlement)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 2, Succeeded: 2}, "settled twice")
}

func batchKept(t *testing.T, f *fixture) {
	b := newBatch()
	first, second := newRun(memberOf(b)), newRun(memberOf(b), later)
	f.enqueue(first, second)
	f.ends(first.ID, store.Success)
	f.releaseAll()
	sweepAll := func() {
		f.advance(2 * time.Hour)
		request := sweeper()
		request.Retention, request.RetentionDead = time.Second, time.Second
		f.sweep(request)
	}
	sweepAll()
	f.wantState(first.ID, store.Succeeded, "its batch has not ended")
	dependent := newRun(onBatch(store.WantSucceeded, &store.NewBatch{ID: b.ID}))
	f.enqueue(dependent)
	f.operate(store.DeleteRuns, second.ID)
	f.releaseAll()
	f.wantBatch(b, store.BatchSucceeded, store.BatchCounts{Members: 1, Succeeded: 1}, "the other one was deleted")
	sweepAll()
	f.wantState(first.ID, store.Succeeded, "an unfinished run depends on its batch")
	f.wantDue("the dependent", dependent)
	sweepAll()
	sweepAll()
	if _, err := f.store.Batch(f.ctx, b.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the batch is kept: %v", err)
	}
	if _, err := f.store.Run(f.ctx, first.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("its member is kept: %v", err)
	}
}
