package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

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

func batchListed(t *testing.T, f *fixture) {
	first, second := newBatch(), newBatch(open, func(b *store.NewBatch) { b.Name = "mails" })
	x, y := newRun(memberOf(first)), newRun(memberOf(first))
	f.enqueue(x, y)
	f.enqueue(newRun(memberOf(second), later))
	f.settles(x.ID, store.Outcome{Kind: store.Success, Result: []byte(`7`)})
	f.releaseAll()
	list := func(filter store.BatchFilter) (ids []store.BatchID) {
		batches, err := f.store.Batches(f.ctx, filter)
		if err != nil {
			t.Fatalf("Batches: %v", err)
		}
		for i := range batches {
			ids = append(ids, batches[i].ID)
		}
		return ids
	}
	for what, list := range map[string][2][]store.BatchID{
		"all":     {list(store.BatchFilter{}), {second.ID, first.ID}},
		"named":   {list(store.BatchFilter{Name: "pages"}), {first.ID}},
		"running": {list(store.BatchFilter{States: []store.BatchState{store.BatchRunning}, Limit: 1}), {second.ID}},
		"older":   {list(store.BatchFilter{Before: second.ID}), {first.ID}},
		"ended":   {list(store.BatchFilter{States: []store.BatchState{store.BatchFailed, store.BatchSucceeded}}), nil},
	} {
		if !sameRuns(list[0], list[1]) {
			t.Errorf("%s: listed %v, want %v", what, list[0], list[1])
		}
	}
	for what, filter := range map[string]store.BatchFilter{
		"a name with NUL": {Name: "a\x00"}, "a name that is no text": {Name: "\xff"}, "a long name": {Name: strings.Repeat("a", 10<<20)},
		"an unknown state": {States: []store.BatchState{77}}, "a limit": {Limit: store.LargestPage + 1},
	} {
		if _, err := f.store.Batches(f.ctx, filter); !errors.Is(err, store.ErrInvalid) || len(err.Error()) > 1000 {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	page, err := f.store.Members(f.ctx, first.ID, store.RunID{}, 1)
	if err != nil || len(page.Members) != 1 || page.Members[0].ID != x.ID || string(page.Members[0].Result) != "7" || page.Next != x.ID {
		t.Errorf("the first member: %+v, %v", page, err)
	}
	page, err = f.store.Members(f.ctx, first.ID, page.Next, 100)
	if err != nil || len(page.Members) != 1 || page.Members[0].ID != y.ID || page.Next != (store.RunID{}) {
		t.Errorf("the second member: %+v, %v", page, err)
	}
	if _, err := f.store.Members(f.ctx, uuid.New(), store.RunID{}, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("members of no batch: %v", err)
	}
}
