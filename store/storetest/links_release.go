package storetest

import (
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func dependentReleased(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "customer", Kind: store.LimitSemaphore, Max: 1})
	source := newRun()
	f.enqueue(source)
	held := newRun(dependsOn(store.WantSucceeded, source.ID))
	keyed := newRun(dependsOn(store.WantFailed, source.ID, held.ID), func(r *store.NewRun) { r.Key = store.Key{Text: "k"} })
	limited := newRun(dependsOn(store.WantSucceeded, source.ID), func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "customer", Key: "7"}} })
	f.enqueue(held, keyed, limited)
	f.releaseAll()
	f.ends(source.ID, store.Death)
	f.operate(store.RetryRuns, source.ID)

	f.did(store.ReleaseRuns, source.ID, store.RunUnchanged, store.Pending)
	f.did(store.ReleaseRuns, held.ID, store.RunChanged, store.Pending)
	f.did(store.ReleaseRuns, held.ID, store.RunUnchanged, store.Pending)
	f.did(store.ReleaseRuns, store.NewRunID(), store.RunNotFound, 0)
	if n := f.audited(held.ID, store.ReleaseRuns); n != 1 {
		t.Errorf("%d rows of the audit log, want 1", n)
	}
	if waiters, err := f.store.Waiters(f.ctx, source.ID, store.RunID{}); err != nil || len(waiters) != 2 {
		t.Errorf("of the source wait %v, %v; want the two that were not released", waiters, err)
	} else if rest, err := f.store.Waiters(f.ctx, source.ID, waiters[0]); err != nil || len(rest) != 1 || rest[0] != waiters[1] {
		t.Errorf("behind the first of %v waits %v, %v", waiters, rest, err)
	}
	links, err := f.store.Links(f.ctx, held.ID)
	if err != nil || len(links.WaitsFor) != 1 || !links.WaitsFor[0].Met {
		t.Errorf("after its release it waits for %+v, %v", links.WaitsFor, err)
	}
	f.did(store.ReleaseRuns, limited.ID, store.RunChanged, store.Pending)
	f.wantAdmitted("limited and released", limited)
	f.operate(store.CancelRuns, source.ID)
	f.releaseAll()
	f.wantDue("released; its source was cancelled after that", held, keyed)
	f.did(store.ReleaseRuns, held.ID, store.RunConflict, store.Succeeded)
}
