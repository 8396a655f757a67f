package storetest

import (
	"errors"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func batchFilter(t *testing.T, f *fixture) {
	b, other := newBatch(), newBatch()
	x, y, z := newRun(memberOf(b)), newRun(memberOf(b)), newRun(memberOf(b), later, func(r *store.NewRun) { r.Job, r.Tags = "other", []string{"red"} })
	f.enqueue(x, newRun(), y, newRun(memberOf(other)), z, newRun(onBatch(store.WantEnded, b)))
	f.ends(x.ID, store.Death)
	f.ends(y.ID, store.Success)
	f.releaseAll()
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
