package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// batchRaces has the members of batches of two end together, some of which add another member
// before they end, while releases run in every process.
func batchRaces(t *testing.T, f *fixture) {
	const batches = 40
	var dependents []store.NewRun
	adds := map[store.RunID]bool{}
	for i := range batches {
		b := newBatch()
		x, y := newRun(memberOf(b)), newRun(memberOf(b))
		adds[x.ID] = i%4 == 0
		dependents = append(dependents, newRun(onBatch(store.WantSucceeded, b)))
		f.enqueue(x, y, dependents[i])
	}
	const runs = 3*batches + batches/4
	var mu sync.Mutex
	var enders sync.WaitGroup
	begun, total := map[store.RunID]int{}, 0
	for range 4 {
		enders.Go(func() {
			worker := newWorker("w")
			for end := time.Now().Add(patience); time.Now().Before(end); {
				claim, claimed := f.claim(worker, 2)
				for i := range claimed {
					mu.Lock()
					begun[claimed[i].ID], total = begun[claimed[i].ID]+1, total+1
					mu.Unlock()
					if adds[claimed[i].ID] {
						added := newRun(memberOf(&store.NewBatch{Holders: true}))
						if _, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: claimed[i].ID, Claim: claim}, added); err != nil {
							t.Errorf("EnqueueUnder: %v", err)
						}
					}
				}
				if len(claimed) > 0 {
					f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Success}))
				}
				if _, err := f.store.Release(context.WithoutCancel(f.ctx), store.ReleaseRequest{Limit: 100}); err != nil {
					t.Errorf("Release: %v", err)
				}
				mu.Lock()
				done := total >= runs
				mu.Unlock()
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
	list, err := f.store.Batches(f.ctx, store.BatchFilter{Limit: batches, States: []store.BatchState{store.BatchSucceeded}})
	if err != nil || len(list) != batches {
		t.Errorf("%d batches have succeeded, want %d: %v", len(list), batches, err)
	}
	for i := range list {
		if c := list[i].Counts; c.Members != c.Succeeded || c.Members < 2 {
			t.Errorf("batch %s has the counts %+v", list[i].ID, c)
		}
	}
}

func batchFilter(t *testing.T, f *fixture) {
	b, other := newBatch(), newBatch()
	x, y, z := newRun(memberOf(b)), newRun(memberOf(b)), newRun(memberOf(b), later, func(r *store.NewRun) { r.Job, r.Tags = "other", []string{"red"} })
	outside := newRun()
	f.enqueue(x, outside, y, newRun(memberOf(other)), z, newRun(onBatch(store.WantEnded, b)))
	f.ends(x.ID, store.Death)
	f.ends(y.ID, store.Success)
	f.releaseAll()
	for run, want := range map[store.RunID]*store.BatchID{x.ID: &b.ID, z.ID: &b.ID, outside.ID: nil} {
		links, err := f.store.Links(f.ctx, run)
		if err != nil || (links.Batch == nil) != (want == nil) || want != nil && *links.Batch != *want {
			t.Errorf("run %s belongs to %v, %v, want %v", run, links.Batch, err, want)
		}
	}
	f.wantFound("members", store.Filter{Batch: b.ID}, z.ID, y.ID, x.ID)
	f.wantFound("members, a page at a time", store.Filter{Batch: b.ID, Limit: 1}, z.ID, y.ID, x.ID)
	f.wantFound("dead members", store.Filter{Batch: b.ID, States: []store.State{store.Dead}}, x.ID)
	f.wantFound("unfinished members", store.Filter{Batch: b.ID, States: []store.State{store.Pending, store.Running}}, z.ID)
	f.wantFound("ended members", store.Filter{Batch: b.ID, States: []store.State{store.Dead, store.Succeeded}}, y.ID, x.ID)
	f.wantFound("members of a job with a tag", store.Filter{Batch: b.ID, Jobs: []string{"other"}, Tag: "red"}, z.ID)
	f.wantFound("members with a key", store.Filter{Batch: b.ID, Key: "none"})
	f.wantFound("members of no batch", store.Filter{Batch: store.NewRunID()})
	f.operate(store.DeleteRuns, y.ID)
	f.wantFound("members without one that was deleted", store.Filter{Batch: b.ID}, z.ID, x.ID)
	for _, bad := range []store.Filter{{Batch: b.ID, Parent: x.ID}, {Batch: b.ID, WaitingOn: x.ID}, {Batch: b.ID, IDs: []store.RunID{x.ID}}} {
		if _, err := f.store.Runs(f.ctx, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v answered %v, want ErrInvalid", bad, err)
		}
	}
}

// wantBatchAudited compares what the audit log says of a batch with one change.
func (f *fixture) wantBatchAudited(id store.BatchID, by, action string) {
	f.t.Helper()
	page, err := f.store.Changes(f.ctx, store.ChangeFilter{Kind: "batch", Subject: id.String()})
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Actor != by || page.Changes[0].Action != action {
		f.t.Errorf("audited are %+v, %v, want one %s by %s", page.Changes, err, action, by)
	}
}
