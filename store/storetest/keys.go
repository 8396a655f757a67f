package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func keyTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"what is wrong with a key is refused":                    keysRefused,
		"a key may be any text, and comes back":                  keysKept,
		"runs with and without keys come in one call":            keysMixed,
		"one call may replace what it has stored itself":         keysWithinACall,
		"a thousand keys are taken and replaced in one call":     keysMany,
		"a replacing run is as it was enqueued, but for its id":  replacedWhole,
		"a repeat of one call with many keys changes nothing":    keysRepeated,
		"of a call of which a part is stored the rest is new":    keysPartly,
		"a dead or cancelled run gives its key up":               keysOfProblems,
		"a retried run has its key back, unless it is another's": keysOfRetried,
		"a deleted run leaves its key":                           keysOfDeleted,
		"a key that is held keeps its run from being swept":      keysOfSwept,
		"many who use the same keys concurrently get along": func(t *testing.T, f *fixture) {
			TestKeyRaces(t, f.store)
		},
	}
}

// key reads unique=, held=, replace=, debounce=, quiet= and at-most=.
func (c command) key() store.Key {
	for word, policy := range map[string]store.KeyPolicy{
		"unique": store.KeyUnique, "replace": store.KeyReplace, "debounce": store.KeyDebounce,
	} {
		if text := c.text(word, ""); text != "" {
			return store.Key{
				Text: text, Policy: policy, HeldFor: c.duration("held", 0), Quiet: c.duration("quiet", 0), AtMost: c.duration("at-most", 0),
			}
		}
	}
	return store.Key{}
}

// with changes a run's key.
func with(key store.Key) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Key = key }
}

func unique(text string) store.Key { return store.Key{Text: text} }

func replacing(text string) store.Key { return store.Key{Text: text, Policy: store.KeyReplace} }

func debounced(text string, quiet, atMost time.Duration) store.Key {
	return store.Key{Text: text, Policy: store.KeyDebounce, Quiet: quiet, AtMost: atMost}
}

func keysRefused(_ *testing.T, f *fixture) {
	long := strings.Repeat("k", store.MaxKeyLength+1)
	for name, key := range map[string]store.Key{
		"a key too long":               unique(long),
		"a key with a control":         unique("a\nb"),
		"a key with NUL":               unique("a\x00b"),
		"a key that is not UTF-8":      unique("a\xff"),
		"no text":                      {Policy: store.KeyReplace},
		"no text, but a time":          {HeldFor: time.Second},
		"an unknown policy":            {Text: "k", Policy: 7},
		"a negative policy":            {Text: "k", Policy: -1},
		"a negative time":              {Text: "k", HeldFor: -1},
		"a time beyond all":            {Text: "k", HeldFor: 101 * 365 * 24 * time.Hour},
		"a time to replace":            {Text: "k", Policy: store.KeyReplace, HeldFor: time.Second},
		"quiet without debounce":       {Text: "k", Quiet: time.Second},
		"no quiet":                     debounced("k", 0, 0),
		"a quiet of nothing":           debounced("k", time.Microsecond, 0),
		"a negative quiet":             debounced("k", -time.Second, 0),
		"a bound below the quiet time": debounced("k", time.Second, time.Millisecond),
		"a negative bound":             debounced("k", time.Second, -time.Second),
	} {
		f.refused(name, "", newRun(with(key)))
	}
	f.refused("debounce with after", "debounce", newRun(with(debounced("k", time.Second, 0)), func(r *store.NewRun) { r.After = time.Second }))
	f.refused("debounce with at", "debounce", newRun(with(debounced("k", time.Second, 0)), func(r *store.NewRun) { r.At = f.now() }))
}

func keysKept(t *testing.T, f *fixture) {
	plain := newRun()
	f.enqueue(plain)
	if key := f.record(plain.ID).Key; key != nil {
		t.Errorf("a run without a key has %q", *key)
	}
	for _, text := range []string{
		strings.Repeat("k", store.MaxKeyLength), "k", "K", " k", "k ", "NULL", "null", `it's "quoted" \ $1 ? {a,b}`, "世界 👋🏽", "é", "e\u0301",
	} {
		run := newRun(with(unique(text)))
		f.enqueue(run)
		record := f.record(run.ID)
		if record.Key == nil || *record.Key != text {
			t.Errorf("key %v, want %q", record.Key, text)
		}
		f.existing(run.ID, newRun(with(unique(text))))
	}
}

// existing enqueues runs one by one and wants them all answered with one that
// is there.
func (f *fixture) existing(id store.RunID, runs ...store.NewRun) {
	f.t.Helper()
	for i := range runs {
		receipts, err := f.store.Enqueue(f.ctx, runs[i])
		if err != nil || len(receipts) != 1 || receipts[0] != (store.Receipt{ID: id, Existing: true}) {
			f.t.Errorf("Enqueue: %+v, %v, want the existing run %s", receipts, err, id)
		}
	}
}

func keysMixed(t *testing.T, f *fixture) {
	holder := newRun(with(unique("held")))
	f.enqueue(holder)
	runs := newRuns(6)
	runs[1].Key, runs[2].Key, runs[4].Key, runs[5].Key = unique("a"), unique("a"), unique("held"), replacing("b")
	receipts, err := f.store.Enqueue(f.ctx, runs...)
	if err != nil {
		t.Fatalf("Enqueue: %v", err)
	}
	want := []store.Receipt{
		{ID: runs[0].ID}, {ID: runs[1].ID}, {ID: runs[1].ID, Existing: true}, {ID: runs[3].ID},
		{ID: holder.ID, Existing: true}, {ID: runs[5].ID},
	}
	for i := range receipts {
		if receipts[i] != want[i] {
			t.Errorf("receipt %d is %+v, want %+v", i, receipts[i], want[i])
		}
	}
	_, claimed := f.claim(newWorker("w1"), 10)
	for i, id := range []store.RunID{holder.ID, runs[0].ID, runs[1].ID, runs[3].ID, runs[5].ID} {
		if len(claimed) != 5 || claimed[i].ID != id {
			t.Fatalf("run %d of the claim is not the one expected: %+v", i, claimed)
		}
	}
}

func keysWithinACall(t *testing.T, f *fixture) {
	runs := newRuns(5, with(replacing("k")))
	for i := range runs {
		runs[i].Args = fmt.Appendf(nil, "%d", i)
	}
	runs[1].Priority, runs[2].Key, runs[3].Key = 1, unique("k"), debounced("k", time.Hour, 0)
	for range 2 { // the second time as a repeat
		receipts, err := f.store.Enqueue(f.ctx, runs[:4]...)
		if err != nil {
			t.Fatalf("Enqueue: %v", err)
		}
		for i := range receipts[1:] {
			if receipts[1+i] != (store.Receipt{ID: runs[0].ID, Existing: true}) {
				t.Errorf("receipt %d is %+v, want the existing run", 1+i, receipts[1+i])
			}
		}
		record := f.record(runs[0].ID)
		if string(record.Args) != "3" || record.Priority != 0 || record.DueAt.Sub(f.now()) < 59*time.Minute {
			t.Errorf("record %+v, want what was enqueued last", record)
		}
	}
	f.existing(runs[0].ID, runs[4])
	_, claimed := f.claimOne(newWorker("w1"))
	if string(claimed.Args) != "4" || f.counts()[store.Pending] != 0 {
		t.Errorf("claimed %s, want the one run with what was enqueued last: %v", claimed.Args, f.counts())
	}
}

func keysMany(t *testing.T, f *fixture) {
	const n = 1000
	first, second := newRuns(n), newRuns(2*n)
	for i := range first {
		first[i].Key = replacing(fmt.Sprintf("key %d", i))
	}
	for i := range second {
		second[i].Key, second[i].Args = replacing(fmt.Sprintf("key %d", 2*n-1-i)), fmt.Appendf(nil, "%d", i)
	}
	f.enqueue(first...)
	receipts, err := f.store.Enqueue(f.ctx, second...)
	if err != nil {
		t.Fatalf("Enqueue: %v", err)
	}
	for i, receipt := range receipts {
		want := store.Receipt{ID: second[i].ID}
		if i >= n {
			want = store.Receipt{ID: first[2*n-1-i].ID, Existing: true}
		}
		if receipt != want {
			t.Fatalf("receipt %d is %+v, want %+v", i, receipt, want)
		}
	}
	if got := f.counts()[store.Pending]; got != 2*n {
		t.Errorf("%d runs are pending, want %d", got, 2*n)
	}
	if got := string(f.record(first[7].ID).Args); got != fmt.Sprint(2*n-1-7) {
		t.Errorf("args %s", got)
	}
}

func replacedWhole(t *testing.T, f *fixture) {
	first := newRun(with(replacing("k")))
	f.enqueue(first)
	created := f.record(first.ID).CreatedAt
	at := f.now().Add(-time.Hour)
	second := newRun(with(replacing("k")), func(r *store.NewRun) {
		r.Queue, r.Priority, r.Args, r.MaxAttempts, r.Timeout = "other", -3, []byte(` {"a": 1}`), 9, 90*time.Second
		r.OnCrash, r.Tags, r.At, r.ExpiresAt = store.CrashDead, []string{"x"}, at, at.Add(240*time.Hour)
	})
	f.existing(first.ID, second)
	r := f.record(first.ID)
	if r.Queue != "other" || r.Priority != -3 || string(r.Args) != ` {"a": 1}` || r.MaxAttempts != 9 || time.Duration(r.Timeout) != 90*time.Second ||
		len(r.Tags) != 1 || r.DueAt != at || r.ExpiresAt == nil || *r.ExpiresAt != at.Add(240*time.Hour) || r.CreatedAt != created ||
		r.Key == nil || *r.Key != "k" || r.State != store.Pending || r.Attempt != 0 {
		t.Errorf("record %+v, want what was enqueued: %+v", r, second)
	}
	spoiled := second.Args
	copy(spoiled, "!!!!")
	if got := string(f.record(first.ID).Args); got != ` {"a": 1}` {
		t.Errorf("the caller of Enqueue can change stored args: %s", got)
	}
	f.existing(first.ID, newRun(with(replacing("k"))))
	r = f.record(first.ID)
	if r.Queue != store.DefaultQueue || r.Timeout != 0 || len(r.Tags) != 0 || r.ExpiresAt != nil || r.DueAt.Before(created) {
		t.Errorf("record %+v, want what was enqueued last", r)
	}
	if heads := f.request(newWorker("w1"), 10).Steps; len(heads) != 1 {
		t.Errorf("%d lanes", len(heads))
	}
	_, claimed := f.claimOne(newWorker("w1"))
	if claimed.ID != first.ID || claimed.Timeout != 0 || claimed.Attempt != 1 {
		t.Errorf("claimed %+v", claimed)
	}
}

func keysRepeated(t *testing.T, f *fixture) {
	holder := newRun(with(replacing("key 0")))
	f.enqueue(holder)
	runs := newRuns(50)
	for i := range runs {
		runs[i].Key, runs[i].Args = replacing(fmt.Sprintf("key %d", i)), fmt.Appendf(nil, "%d", i)
	}
	check := func(existing bool) {
		t.Helper()
		receipts, err := f.store.Enqueue(f.ctx, runs...)
		if err != nil {
			t.Fatalf("Enqueue: %v", err)
		}
		for i, receipt := range receipts {
			want := store.Receipt{ID: runs[i].ID, Existing: existing}
			if i == 0 {
				want = store.Receipt{ID: holder.ID, Existing: true}
			}
			if receipt != want {
				t.Errorf("receipt %d is %+v, want %+v", i, receipt, want)
			}
		}
	}
	check(false)
	check(true)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 100)
	check(true)
	f.settle(all(claim, worker, claimed, success()))
	check(true)
	if counts := f.counts(); counts[store.Succeeded] != 50 || counts[store.Pending] != 0 {
		t.Errorf("counts %v, want fifty that have succeeded once", counts)
	}
}

func keysOfProblems(_ *testing.T, f *fixture) {
	worker := newWorker("w1")
	for _, kind := range []store.OutcomeKind{store.Death, store.Cancellation} {
		run := newRun(with(unique("k")))
		f.enqueue(run)
		claim, claimed := f.claimOne(worker)
		f.existing(run.ID, newRun(with(unique("k"))))
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: kind, Error: "enough"}))
	}
	f.enqueue(newRun(with(unique("k"))))
}

// enqueueKeyed enqueues under keys that all who use the mixture share.
func (m *mixture) enqueueKeyed(ctx context.Context) error {
	runs := newRuns(5)
	runs[0].Key, runs[1].Key, runs[2].Key, runs[3].Key = unique("u"), replacing("r"), debounced("d", time.Millisecond, 0), replacing("u")
	runs[1].Priority = 1
	receipts, err := m.store.Enqueue(ctx, runs...)
	m.mu.Lock()
	for _, receipt := range receipts {
		if !receipt.Existing {
			m.enqueued++
		}
	}
	m.mu.Unlock()
	return err
}
