package storetest

import (
	"context"
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
