package storetest

import (
	"slices"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

// txKeys enqueues with keys through a transaction: alone and together, where
// nobody, this transaction or an earlier one holds them.
func txKeys(t *testing.T, f *fixture) {
	early := newRun(with(unique("early")))
	f.enqueue(early)
	first := newRun(with(unique("k")))
	several := []store.NewRun{newRun(with(unique("a"))), newRun(), newRun(with(unique("b")))}
	enqueue := func(tx Transaction) {
		f.enqueueIn(tx, first)
		f.enqueueIn(tx, several...)
		f.passed(t, tx, first.ID, newRun(with(unique("k"))))
		f.passed(t, tx, early.ID, newRun(with(unique("early"))))
		replaced := newRun(with(replacing("b")), func(r *store.NewRun) { r.Args = []byte(`"later"`) })
		f.passed(t, tx, several[2].ID, replaced)

		mixed := []store.NewRun{newRun(with(unique("c"))), newRun(with(unique("k"))), newRun(with(unique("c")))}
		receipts, err := tx.Enqueue(f.ctx, mixed...)
		want := []store.Receipt{{ID: mixed[0].ID}, {ID: first.ID, Existing: true}, {ID: mixed[0].ID, Existing: true}}
		if err != nil || !slices.Equal(receipts, want) {
			t.Errorf("Enqueue of new and held keys answered %+v, %v, want %+v", receipts, err, want)
		}
	}
	tx := f.begin()
	enqueue(tx)
	tx.Rollback()
	f.absent(first.ID)
	f.absent(several[1].ID)
	tx = f.begin() // the keys are free again
	enqueue(tx)
	f.commit(tx)
	if args := string(f.record(several[2].ID).Args); args != `"later"` {
		t.Errorf("the replaced run has args %s", args)
	}
	if counts, err := f.store.Counts(f.ctx); err != nil || counts[store.Pending].N != 6 {
		t.Errorf("%d runs are pending, want 6: %v", counts[store.Pending].N, err)
	}
}

// passed enqueues a run whose key another one holds.
func (f *fixture) passed(t *testing.T, tx Transaction, holder store.RunID, run store.NewRun) {
	t.Helper()
	receipts, err := tx.Enqueue(f.ctx, run)
	if want := (store.Receipt{ID: holder, Existing: true}); err != nil || len(receipts) != 1 || receipts[0] != want {
		t.Errorf("Enqueue with key %q answered %+v, %v, want %+v", run.Key.Text, receipts, err, want)
	}
}

func keysPartly(t *testing.T, f *fixture) {
	there := newRun()
	f.enqueue(there)
	plain, keyed := newRun(), newRun(with(unique("k")))
	receipts, err := f.store.Enqueue(f.ctx, there, plain, keyed)
	want := []store.Receipt{{ID: there.ID, Existing: true}, {ID: plain.ID}, {ID: keyed.ID}}
	if err != nil || !slices.Equal(receipts, want) {
		t.Errorf("Enqueue answered %+v, %v, want %+v", receipts, err, want)
	}
	if counts, err := f.store.Counts(f.ctx); err != nil || counts[store.Pending].N != 3 {
		t.Errorf("%d runs are pending, want 3: %v", counts[store.Pending].N, err)
	}
}
