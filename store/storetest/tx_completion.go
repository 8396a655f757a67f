package storetest

import (
	"errors"
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
// is touched, so that it goes on.
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
