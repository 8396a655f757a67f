package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// misfit settles a run whose args do not fit: it waits with its place, so that no younger run
// of its key overtakes it.
func misfit(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	first, second := newRun(limited("tenant!finished=a")), newRun(limited("tenant!finished=a"))
	f.enqueue(first)
	f.enqueue(second)
	f.wantAdmitted("the first", first).end(store.Outcome{Kind: store.Misfit, Error: "does not fit", After: time.Minute, Unbegun: true})
	r := f.record(first.ID)
	if r.State != store.Pending || r.Attempt != 0 || r.Error == nil || *r.Error != "does not fit" || r.DueAt.Before(f.now().Add(50*time.Second)) {
		t.Errorf("the run is %v, attempt %d, due at %v; want it pending in a minute, with no attempt spent, and the error", r.State, r.Attempt, r.DueAt)
	}
	if len(r.Attempts) != 1 || r.Attempts[0].Outcome != store.Misfit || r.Attempts[0].Number != 1 || *r.Attempts[0].Error != "does not fit" {
		t.Errorf("attempts %+v, want one misfit", r.Attempts)
	}
	f.wantAdmitted("nothing, while the first one waits")
	f.advance(time.Minute)
	f.wantAdmitted("the first one again", first).end(success())
	f.wantAdmitted("the second", second).end(success())
}
