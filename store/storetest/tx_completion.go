package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func txLog(t *testing.T, f *fixture) {
	worker, holder := f.held()
	for _, text := range []string{"rolled back", "first line\nsecond \u00e9"} {
		tx := f.begin()
		if err := tx.Complete(f.ctx, holder, store.Completion{Result: []byte(`7`), Log: text}); err != nil {
			t.Fatalf("Complete: %v", err)
		}
		if seen, err := tx.Run(f.ctx, holder.Run); err != nil || len(seen.Attempts) != 1 || seen.Attempts[0].Log == nil || *seen.Attempts[0].Log != text {
			t.Errorf("through the transaction: %+v, %v", seen, err)
		}
		if text == "rolled back" {
			tx.Rollback()
		} else {
			f.commit(tx)
		}
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Failure, Error: "late", Log: "late"}))
	record := f.record(holder.Run)
	if len(record.Attempts) != 1 {
		t.Fatalf("%d attempts, want 1: %+v", len(record.Attempts), record.Attempts)
	}
	a := record.Attempts[0]
	if a.Log == nil || *a.Log != "first line\nsecond \u00e9" || a.Outcome != store.Success || a.Number != 1 || a.Worker != worker.Name ||
		a.Error != nil || a.EndedAt.Before(a.StartedAt) {
		t.Errorf("the attempt is %+v", a)
	}
}

// txUnstorable: what some engine cannot keep is refused before the transaction
// is touched, so that it continues.
func txUnstorable(t *testing.T, f *fixture) {
	_, holder := f.held()
	tx := f.begin()
	for name, bad := range map[string]store.Completion{
		"NUL in the result":             {Result: []byte(`"\u0000"`)},
		"invalid UTF-8 in the result":   {Result: []byte("\"\xff\"")},
		"a lone surrogate":              {Result: []byte(`"\ud800"`)},
		"no JSON":                       {Result: []byte(`{`)},
		"an empty text":                 {Result: []byte{}},
		"ten mebibytes":                 {Result: jsonString(10 << 20)},
		"NUL in the log":                {Log: "a\x00b"},
		"invalid UTF-8 in the log":      {Log: "\xff"},
		"a log beyond its largest size": {Log: strings.Repeat("l", store.MaxLogSize+1)},
	} {
		if err := tx.Complete(f.ctx, holder, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: Complete answered %v, want ErrInvalid", name, err)
		}
	}
	if err := tx.Complete(f.ctx, holder, store.Completion{Log: strings.Repeat("l", store.MaxLogSize)}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	f.commit(tx)
	if got := f.record(holder.Run).State; got != store.Succeeded {
		t.Errorf("the run is %v", got)
	}
}

// txKeys enqueues with keys through a transaction: alone and together, where
// the key is free, or this transaction or an earlier one holds it.
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
