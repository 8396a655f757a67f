package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

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
