package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func sweepBesideWorkers(t *testing.T, f *fixture) {
	const runs = 600
	f.enqueue(newRuns(runs)...)
	template := f.request(store.WorkerID{}, 7)
	var settled atomic.Int64
	request := sweeper()
	work := func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			worker := newWorker(fmt.Sprint("w", i))
			for settled.Load() < runs {
				n, err := claimAndSettle(ctx, f.store, template, worker)
				if err != nil {
					return err
				}
				settled.Add(int64(n))
			}
			return nil
		}
	}
	sweep := func(ctx context.Context) error {
		for settled.Load() < runs {
			swept, err := f.store.Sweep(ctx, request)
			if err != nil || swept.Deleted > 0 || len(swept.Returned) > 0 {
				return fmt.Errorf("swept %+v: %w", swept, err)
			}
		}
		return nil
	}
	f.together(append(repeat(4, work), sweep)...)
	if counts := f.counts(); counts[store.Succeeded] != runs {
		t.Errorf("counts %v, want all of %d succeeded", counts, runs)
	}
}

// claimAndSettle takes what the template's steps find, and ends it well.
func claimAndSettle(ctx context.Context, db store.Store, template store.ClaimRequest, worker store.WorkerID) (int, error) {
	request := template
	request.Claim, request.Worker = lease.NewClaimID(), worker
	claimed, err := db.Claim(ctx, request)
	if err != nil || len(claimed) == 0 {
		return 0, err
	}
	verdicts, err := settled(ctx, db, all(request.Claim, worker, claimed, success()))
	for _, verdict := range verdicts {
		if verdict != store.Applied {
			return 0, fmt.Errorf("a settle of a living worker is %v", verdict)
		}
	}
	return len(claimed), err
}

func sweepersRace(t *testing.T, f *fixture) {
	const runs = 400
	f.enqueue(newRuns(runs)...)
	template := f.request(store.WorkerID{}, 50)
	for n := 0; n < runs; {
		more, err := claimAndSettle(f.ctx, f.store, template, newWorker("w1"))
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	f.advance(26 * time.Hour)
	var deleted atomic.Int64
	f.together(repeat(8, func(int) func(context.Context) error {
		request := sweeper()
		request.Limit = 20
		return func(ctx context.Context) error {
			for began := time.Now(); deleted.Load() < runs && time.Since(began) < patience; {
				swept, err := f.store.Sweep(ctx, request)
				if err != nil {
					return err
				}
				deleted.Add(int64(swept.Deleted))
				if swept.Busy {
					<-time.After(time.Millisecond)
				}
			}
			return nil
		}
	})...)
	if deleted.Load() != runs {
		t.Errorf("%d deletions of %d runs", deleted.Load(), runs)
	}
}
