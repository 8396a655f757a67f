package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// keyed is a run with a unique key.
func keyed(key string, heldFor time.Duration) store.NewRun {
	return newRun(func(r *store.NewRun) { r.Key = store.Key{Text: key, HeldFor: heldFor} })
}

// holder enqueues a run with a key and tells who has the key then.
func (f *fixture) holder(run store.NewRun) store.RunID {
	f.t.Helper()
	receipts, err := f.store.Enqueue(f.ctx, run)
	if err != nil {
		f.t.Fatal(err)
	}
	return receipts[0].ID
}

func keysOfRetried(t *testing.T, f *fixture) {
	first, second, third := keyed("k", 0), keyed("k", 0), keyed("k", 0)
	f.holder(first)
	f.did(store.CancelRuns, first.ID, store.RunChanged, store.Cancelled)
	if f.holder(second) != second.ID {
		t.Fatal("a cancelled run keeps its key")
	}
	f.keyHeld(first.ID, "k", second.ID)
	f.did(store.CancelRuns, second.ID, store.RunChanged, store.Cancelled)
	f.did(store.RetryRuns, first.ID, store.RunChanged, store.Pending)
	if id := f.holder(third); id != first.ID {
		t.Errorf("the key is %s's, want the retried run's", id)
	}
	f.keyHeld(second.ID, "k", first.ID)
}

// keyHeld wants the retry of a cancelled run to be refused, and to be told who
// holds its key.
func (f *fixture) keyHeld(id store.RunID, key string, holder store.RunID) {
	f.t.Helper()
	want := store.ChangedRun{ID: id, Result: store.RunConflict, State: store.Cancelled, Key: key, KeyHolder: holder}
	if got := f.operate(store.RetryRuns, id)[0]; got != want {
		f.t.Errorf("retry: %+v, want %+v", got, want)
	}
}

func keysOfDeleted(t *testing.T, f *fixture) {
	first, second := keyed("k", time.Hour), keyed("k", 0)
	f.holder(first)
	f.did(store.CancelRuns, first.ID, store.RunChanged, store.Cancelled)
	if id := f.holder(second); id != first.ID {
		t.Fatalf("the key is %s's, and it is held for an hour", id)
	}
	f.did(store.DeleteRuns, first.ID, store.RunChanged, store.Cancelled)
	if id := f.holder(second); id != second.ID {
		t.Errorf("the key is %s's, whose run is deleted", id)
	}
}

func keysOfSwept(t *testing.T, f *fixture) {
	long, short := keyed("long", 48*time.Hour), keyed("short", time.Hour)
	for _, run := range []store.NewRun{long, short} {
		f.holder(run)
		f.did(store.CancelRuns, run.ID, store.RunChanged, store.Cancelled)
	}
	f.advance(26 * time.Hour)
	for range 20 {
		if swept, err := f.store.Sweep(f.ctx, sweeper()); err != nil || swept.Done {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if id := f.holder(keyed("long", 0)); id != long.ID {
		t.Errorf("the key is %s's, and it is held for two days", id)
	}
	again := keyed("short", 0)
	if id := f.holder(again); id != again.ID {
		t.Errorf("the key is %s's, whose run is swept", id)
	}
}
