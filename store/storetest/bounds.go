package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func boundTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"what is just within its bound is stored":               boundsWithin,
		"what is just beyond its bound is refused":              boundsBeyond,
		"text that some engine cannot keep is refused":          unstorableText,
		"one refused run keeps all runs of its call out":        refusedTogether,
		"the same id twice in one call is refused":              twiceInOneCall,
		"errors and stacks of the largest size are kept":        largestErrors,
		"results are kept, whatever JSON they are":              resultsKept,
		"a worker's name may be any text":                       workerNames,
		"names that look like SQL are just names and just text": hostileText,
		"a run has room for so many inputs":                     inputBound,
	}
}

// bound is a value at its bound, and the same one step further.
type bound struct {
	name           string
	within, beyond func(*store.NewRun)
}

func jsonString(size int) []byte { return []byte(`"` + strings.Repeat("x", size-2) + `"`) }

func nested(depth int) []byte {
	return []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

func tags(n int) []string { return strings.Split(strings.Repeat("t ", n-1)+"t", " ") }

func bounds() []bound {
	type change = func(*store.NewRun)
	name := func(n int) string { return strings.Repeat("n", n) }
	year := func(y int) time.Time { return time.Date(y, 6, 1, 0, 0, 0, 0, time.UTC) }
	args := func(b []byte) change { return func(r *store.NewRun) { r.Args = b } }
	priority := func(n int) change { return func(r *store.NewRun) { r.Priority = n } }
	attempts := func(n int) change { return func(r *store.NewRun) { r.MaxAttempts = n } }
	job := func(s string) change { return func(r *store.NewRun) { r.Job = s } }
	queue := func(s string) change { return func(r *store.NewRun) { r.Queue = s } }
	timeout := func(d time.Duration) change { return func(r *store.NewRun) { r.Timeout = d } }
	after := func(d time.Duration) change { return func(r *store.NewRun) { r.After = d } }
	at := func(y int) change { return func(r *store.NewRun) { r.At = year(y) } }
	expires := func(y int) change { return func(r *store.NewRun) { r.ExpiresAt = year(y) } }
	tagged := func(s ...string) change { return func(r *store.NewRun) { r.Tags = s } }
	return []bound{
		{"args size", args(jsonString(store.MaxArgsSize)), args(jsonString(store.MaxArgsSize + 1))},
		{"args depth", args(nested(store.MaxJSONDepth)), args(nested(store.MaxJSONDepth + 1))},
		{"largest priority", priority(store.MaxPriority), priority(store.MaxPriority + 1)},
		{"smallest priority", priority(store.MinPriority), priority(store.MinPriority - 1)},
		{"fewest attempts", attempts(1), attempts(0)},
		{"most attempts", attempts(10_000), attempts(10_001)},
		{"job's name", job(name(store.MaxNameLength)), job(name(store.MaxNameLength + 1))},
		{"job's shortest name", job("j"), job("")},
		{"queue's name", queue(name(store.MaxNameLength)), queue(name(store.MaxNameLength + 1))},
		{"queue's shortest name", queue("q"), queue("")},
		{"timeout", timeout(time.Millisecond), timeout(time.Millisecond - 1)},
		{"no timeout", timeout(0), timeout(-1)},
		{"after", after(0), after(-1)},
		{"latest after", after(100 * 365 * 24 * time.Hour), after(100*365*24*time.Hour + 1)},
		{"earliest at", at(1970), at(1969)},
		{"latest at", at(9999), at(10_000)},
		{"earliest expiry", expires(1970), expires(1969)},
		{"latest expiry", expires(9999), expires(10_000)},
		{"tags", tagged(tags(store.MaxTags)...), tagged(tags(store.MaxTags + 1)...)},
		{"tag's length", tagged(name(store.MaxNameLength)), tagged(name(store.MaxNameLength + 1))},
		{"tag's shortest", tagged("t"), tagged("")},
	}
}

func boundsWithin(t *testing.T, f *fixture) {
	for _, bound := range bounds() {
		run := newRun(bound.within)
		if _, err := f.store.Enqueue(f.ctx, run); err != nil {
			t.Errorf("%s: refused: %v", bound.name, err)
			continue
		}
		record := f.record(run.ID)
		if record.Job != run.Job || record.Queue != run.Queue || !bytes.Equal(record.Args, run.Args) ||
			len(record.Tags) != len(run.Tags) || record.MaxAttempts != run.MaxAttempts {
			t.Errorf("%s: stored otherwise than enqueued", bound.name)
		}
	}
}

func boundsBeyond(_ *testing.T, f *fixture) {
	for _, bound := range bounds() {
		f.refused(bound.name, "", newRun(bound.beyond))
	}
	f.refused("both at and after", "", newRun(func(r *store.NewRun) { r.At, r.After = f.now(), time.Second }))
	f.refused("an id that is not of version 7", "", newRun(func(r *store.NewRun) { r.ID = uuid.New() }))
	f.refused("no id", "", newRun(func(r *store.NewRun) { r.ID = store.RunID{} }))
	f.refused("an unknown crash policy", "", newRun(func(r *store.NewRun) { r.OnCrash = 7 }))
}

// refused enqueues a good run and a bad one and wants neither stored.
func (f *fixture) refused(name, mention string, bad store.NewRun) {
	f.t.Helper()
	good := newRun()
	receipts, err := f.store.Enqueue(f.ctx, good, bad)
	if !errors.Is(err, store.ErrInvalid) || len(receipts) > 0 {
		f.t.Errorf("%s: Enqueue: %v, %v, want ErrInvalid", name, receipts, err)
		return
	}
	if !strings.Contains(err.Error(), mention) {
		f.t.Errorf("%s: the error does not mention %q: %v", name, mention, err)
	}
	for _, run := range []store.NewRun{good, bad} {
		if _, err := f.store.Run(f.ctx, run.ID); !errors.Is(err, store.ErrNotFound) {
			f.t.Errorf("%s: something was stored, or %v", name, err)
		}
	}
}

func unstorableText(_ *testing.T, f *fixture) {
	texts := []struct{ name, args, mention string }{
		{"NUL, escaped", `{"user":{"name":"a\u0000b"}}`, "args.user.name"},
		{"NUL in a list", `{"list":["a",["b","\u0000"]]}`, "args.list[1][1]"},
		{"NUL in a key", `{"a\u0000":1}`, "args"},
		{"NUL, raw", "{\"a\":\"\x00\"}", "args"},
		{"invalid UTF-8", "{\"user\":{\"name\":\"a\xff\"}}", "args.user.name"},
		{"lone high surrogate", `{"user":{"name":"\ud83d"}}`, "args.user.name"},
		{"lone low surrogate", `{"user":{"name":"\ude00 x"}}`, "args.user.name"},
		{"surrogates in the wrong order", `["\ude00\ud83d"]`, "args[0]"},
		{"high surrogate before another escape", `["\ud83d\u0041"]`, "args[0]"},
		{"not JSON", `{a:1}`, "args"},
		{"two values", `{} {}`, "args"},
		{"nothing", ``, "args"},
		{"NaN", `NaN`, "args"},
		{"half", `{"a":`, "args"},
	}
	for _, text := range texts {
		f.refused(text.name, text.mention, newRun(func(r *store.NewRun) { r.Args = []byte(text.args) }))
	}
	for _, tag := range []string{"a\x00b", "a\xff", "a\nb", "\x7f"} {
		f.refused("a tag of unstorable text", "tag", newRun(func(r *store.NewRun) { r.Tags = []string{tag} }))
	}
	for _, name := range []string{"a b", "a\x00", "ü", "a\xff", `a"b`, "a;b", "a\n"} {
		f.refused("a job's name", "job", newRun(func(r *store.NewRun) { r.Job = name }))
		f.refused("a queue's name", "queue", newRun(func(r *store.NewRun) { r.Queue = name }))
	}
}

func refusedTogether(t *testing.T, f *fixture) {
	runs := newRuns(100)
	runs[73].Priority = 99
	if _, err := f.store.Enqueue(f.ctx, runs...); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "run 73") {
		t.Errorf("Enqueue: %v, want ErrInvalid that names run 73", err)
	}
	for state, n := range f.counts() {
		if n != 0 {
			t.Errorf("%d runs are %v, want none stored", n, state)
		}
	}
}

func twiceInOneCall(_ *testing.T, f *fixture) {
	run := newRun()
	if _, err := f.store.Enqueue(f.ctx, run, newRun(), run); !errors.Is(err, store.ErrInvalid) {
		f.t.Errorf("Enqueue: %v, want ErrInvalid", err)
	}
}

func largestErrors(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	largest := strings.Repeat("💥", store.MaxErrorSize/len("💥"))
	kinds := []store.OutcomeKind{store.Failure, store.Death, store.Cancellation}
	f.enqueue(newRuns(len(kinds))...)
	claim, claimed := f.claim(worker, len(kinds))
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	for i, kind := range kinds {
		outcome := store.Outcome{Kind: kind, After: time.Hour, Error: largest, Stack: "goroutine 1:\n\t" + largest[:8000]}
		settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
	}
	f.settle(settlement)
	for i, kind := range kinds {
		record := f.record(claimed[i].ID)
		if record.Error == nil || *record.Error != largest {
			t.Errorf("%v: the error was not kept", kind)
		}
		if len(record.Attempts) != 1 {
			t.Errorf("%v: %d attempts, want 1", kind, len(record.Attempts))
			continue
		}
		attempt := record.Attempts[0]
		if attempt.Outcome != kind || attempt.Error == nil || *attempt.Error != largest ||
			attempt.Stack == nil || *attempt.Stack != settlement.Runs[i].Outcome.Stack {
			t.Errorf("%v: the attempt was not kept as it was", kind)
		}
	}
}

func resultsKept(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	results := [][]byte{
		nil, []byte(`null`), []byte(`{}`), []byte(`"grüße 👋🏽 \ud83d\ude00"`), []byte(`9007199254740993`),
		[]byte(`[1,{"a":[]}]`), jsonString(store.MaxArgsSize),
	}
	f.enqueue(newRuns(len(results))...)
	claim, claimed := f.claim(worker, len(results))
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	for i, result := range results {
		outcome := store.Outcome{Kind: store.Success, Result: result}
		settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
	}
	f.settle(settlement)
	for i, result := range results {
		got := f.record(claimed[i].ID).Result
		if (got == nil) != (result == nil) || !sameJSON(got, result) {
			t.Errorf("result %.60q, want %.60q", got, result)
		}
	}
}

// sameJSON compares values, not bytes: a store may keep results in a form of
// its own. Numbers must keep their digits.
func sameJSON(a, b []byte) bool {
	var values [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if text != nil && decoder.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

func workerNames(t *testing.T, f *fixture) {
	for _, name := range []string{`'";--`, "👷🏽", "a b", "NULL", strings.Repeat("w", store.MaxNameLength)} {
		run := newRun()
		f.enqueue(run)
		worker := newWorker(name)
		claim, claimed := f.claimOne(worker)
		f.advance(31 * time.Second)
		if verdicts := f.settle(one(claim, worker, claimed.ID, success())); verdicts[0] != store.Applied {
			t.Errorf("%q: verdict %d", name, verdicts[0])
		}
		if got := f.record(run.ID).Worker; got == nil || *got != name {
			t.Errorf("the worker's name %q was not kept", name)
		}
	}
}

func hostileText(t *testing.T, f *fixture) {
	const text = `'); DROP TABLE runs; -- $1 ? %s {"a":1} \u0041 \'`
	worker := newWorker("w1")
	run := newRun(func(r *store.NewRun) { r.Job, r.Queue, r.Tags = "mail", store.DefaultQueue, []string{text} })
	f.enqueue(run)
	claim, claimed := f.claimOne(worker)
	f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: store.Death, Error: text, Stack: text}))
	record := f.record(run.ID)
	if record.Tags[0] != text || *record.Error != text || *record.Attempts[0].Stack != text {
		t.Errorf("text came back otherwise: %+v", record)
	}
}
