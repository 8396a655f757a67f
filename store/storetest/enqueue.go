package storetest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func enqueueTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"five thousand runs are enqueued in one call":     enqueueMany,
		"an enqueue of nothing stores nothing":            enqueueNothing,
		"args come back byte for byte":                    argsExact,
		"tags come back as they were given":               tagsExact,
		"times are kept in UTC and microseconds":          timesExact,
		"a run is due when it is stored, at, or after":    dueTimes,
		"the store shares no memory with its callers":     nothingShared,
		"every part of a run is on its record":            recordComplete,
		"lanes differ by queue, by job and by priority":   lanesDiffer,
		"runs of one call are claimed in the order given": orderOfOneCall,
	}
}

func enqueueMany(t *testing.T, f *fixture) {
	const n = 5000
	runs := newRuns(n)
	f.enqueue(runs...)
	receipts, err := f.store.Enqueue(f.ctx, append(runs, newRun())...)
	if err != nil {
		t.Fatalf("Enqueue again: %v", err)
	}
	for i, receipt := range receipts {
		if receipt.Existing != (i < n) {
			t.Fatalf("receipt %d says existing = %v", i, receipt.Existing)
		}
	}
	if got := f.counts()[store.Pending]; got != n+1 {
		t.Errorf("%d runs are pending, want %d", got, n+1)
	}
}

func enqueueNothing(t *testing.T, f *fixture) {
	receipts, err := f.store.Enqueue(f.ctx)
	if err != nil || len(receipts) != 0 {
		t.Errorf("Enqueue of nothing: %v, %v", receipts, err)
	}
}

func argsExact(t *testing.T, f *fixture) {
	texts := []string{
		`{}`, `null`, `0`, `-0`, `1e400`, `1.0`, `""`, `[]`,
		"  { \"b\" : 1,\n\t\"a\": [ 1,2 ,3 ] }\r\n ",
		`{"z":1,"a":2,"m":3,"a":4}`,
		`{"n":9007199254740993,"big":123456789012345678901234567890,"f":0.1000000000000000055511151231257827}`,
		`"grüße 世界 👋🏽 \u00e9 \ud83d\ude00 \/ \" \\ \n \u2028 ` + "\u2028\ufffd" + `"`,
		`"$1 ? ' '' -- ; \\x00 {a,b} null"`,
	}
	runs := make([]store.NewRun, len(texts))
	for i := range texts {
		runs[i] = newRun(func(r *store.NewRun) { r.Args = []byte(texts[i]) })
	}
	f.enqueue(runs...)
	_, claimed := f.claim(newWorker("w1"), len(texts))
	if len(claimed) != len(texts) {
		t.Fatalf("claimed %d runs, want %d", len(claimed), len(texts))
	}
	for i, c := range claimed {
		if string(c.Args) != texts[i] {
			t.Errorf("claimed args\n%q, want\n%q", c.Args, texts[i])
		}
		if record := f.record(c.ID); string(record.Args) != texts[i] {
			t.Errorf("args on record\n%q, want\n%q", record.Args, texts[i])
		}
	}
}

func tagsExact(t *testing.T, f *fixture) {
	tags := []string{"b", "a", "b", "with space", `q"uote'`, `comma,brace{}\`, "世界 👋🏽", "NULL"}
	tagged := newRun(func(r *store.NewRun) { r.Tags = tags })
	plain := newRun()
	f.enqueue(tagged, plain)
	if got := f.record(tagged.ID).Tags; !slices.Equal(got, tags) {
		t.Errorf("tags %q, want %q", got, tags)
	}
	if got := f.record(plain.ID).Tags; got == nil || len(got) != 0 {
		t.Errorf("tags of a run without any are %#v, want an empty list", got)
	}
}

func timesExact(t *testing.T, f *fixture) {
	zone := time.FixedZone("somewhere", 2*60*60+30*60)
	at := time.Date(2101, 3, 4, 5, 6, 7, 123456789, zone)
	expires := time.Date(2102, 3, 4, 5, 6, 7, 999999999, zone)
	run := newRun(func(r *store.NewRun) { r.At, r.ExpiresAt = at, expires })
	due := newRun()
	f.enqueue(run, due)
	record := f.record(run.ID)
	if want := at.UTC().Truncate(time.Microsecond); record.DueAt != want {
		t.Errorf("due at %v, want %v", record.DueAt, want)
	}
	if want := expires.UTC().Truncate(time.Microsecond); record.ExpiresAt == nil || *record.ExpiresAt != want {
		t.Errorf("expires at %v, want %v", record.ExpiresAt, want)
	}
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	f.settle(one(claim, worker, claimed.ID, success()))
	record = f.record(due.ID)
	times := []time.Time{record.CreatedAt, record.DueAt, *record.StartedAt, *record.FinishedAt, claimed.DueAt, claimed.CreatedAt, f.now()}
	for i, moment := range times {
		if moment.Location() != time.UTC || moment != moment.Truncate(time.Microsecond) {
			t.Errorf("time %d is %v, want UTC and microseconds", i, moment)
		}
	}
	if record.StartedAt.Before(record.CreatedAt) || record.FinishedAt.Before(*record.StartedAt) {
		t.Errorf("created %v, started %v, finished %v are out of order", record.CreatedAt, record.StartedAt, record.FinishedAt)
	}
	if success := record.Attempts[0]; success.StartedAt != *record.StartedAt || success.EndedAt != *record.FinishedAt {
		t.Errorf("the attempt lasted from %v to %v, the run from %v to %v",
			success.StartedAt, success.EndedAt, record.StartedAt, record.FinishedAt)
	}
	if claimed.DueAt != record.DueAt || claimed.CreatedAt != record.CreatedAt {
		t.Errorf("the claim said due %v, created %v; the record says %v, %v", claimed.DueAt, claimed.CreatedAt, record.DueAt, record.CreatedAt)
	}
}

func dueTimes(t *testing.T, f *fixture) {
	before := f.now()
	past := before.Add(-time.Hour)
	at := newRun(func(r *store.NewRun) { r.At = past })
	after := newRun(func(r *store.NewRun) { r.After = time.Hour })
	stored := newRun()
	f.enqueue(at, after, stored)
	now := f.now()
	if got := f.record(at.ID).DueAt; got != past {
		t.Errorf("a run at %v is due at %v", past, got)
	}
	if got := f.record(after.ID).DueAt; got.Before(before.Add(time.Hour)) || got.After(now.Add(time.Hour)) {
		t.Errorf("a run after an hour, enqueued between %v and %v, is due at %v", before, now, got)
	}
	if got := f.record(stored.ID).DueAt; got.Before(before) || got.After(now) {
		t.Errorf("a run enqueued between %v and %v is due at %v", before, now, got)
	}
	_, claimed := f.claim(newWorker("w1"), 10)
	if len(claimed) != 2 || claimed[0].ID != at.ID || claimed[1].ID != stored.ID {
		t.Errorf("claimed %v, want the run of an hour ago and then the one due when stored", claimed)
	}
}

func nothingShared(t *testing.T, f *fixture) {
	const text = `{"a":"untouched"}`
	run := newRun(func(r *store.NewRun) { r.Args, r.Tags = []byte(text), []string{"a"} })
	f.enqueue(run)
	spoil := func(b []byte) { copy(b, bytes.Repeat([]byte("!"), len(b))) }
	spoil(run.Args)
	run.Tags[0] = "!"
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	if string(claimed.Args) != text {
		t.Fatalf("the caller of Enqueue can change stored args: %s", claimed.Args)
	}
	spoil(claimed.Args)
	outcome := store.Outcome{Kind: store.Success, Result: []byte(text)}
	f.settle(one(claim, worker, run.ID, outcome))
	spoil(outcome.Result)
	record := f.record(run.ID)
	if string(record.Args) != text || string(record.Result) != text || record.Tags[0] != "a" {
		t.Fatalf("callers can change what is stored: %s, %s, %s", record.Args, record.Result, record.Tags)
	}
	spoil(record.Args)
	spoil(record.Result)
	record.Tags[0] = "!"
	*record.StartedAt, *record.FinishedAt, *record.Worker = time.Time{}, time.Time{}, "!"
	again := f.record(run.ID)
	if string(again.Args) != text || string(again.Result) != text || again.Tags[0] != "a" || *again.Worker != "w1" ||
		again.StartedAt.IsZero() || again.FinishedAt.IsZero() {
		t.Errorf("the caller of Run can change what is stored: %+v", again)
	}
}

func recordComplete(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) {
		r.Job, r.Queue, r.Priority = "a.b:c/d@e-f_G9", "queue/1@x", -3
		r.MaxAttempts, r.Timeout = 10_000, 90*time.Minute+1500*time.Microsecond
	})
	f.enqueue(run)
	record := f.record(run.ID)
	if record.ID != run.ID || record.Job != run.Job || record.Queue != run.Queue || record.Priority != run.Priority ||
		record.MaxAttempts != run.MaxAttempts || time.Duration(record.Timeout) != run.Timeout || record.State != store.Pending {
		t.Errorf("record %+v, want what was enqueued: %+v", record, run)
	}
	if record.Attempt != 0 || record.CrashCount != 0 || record.Isolated || record.Fence != 0 || record.StartedAt != nil ||
		record.FinishedAt != nil || record.ExpiresAt != nil || record.Worker != nil || record.Schedule != nil ||
		record.Result != nil || record.Error != nil || len(record.Attempts) != 0 {
		t.Errorf("record %+v of a run that was never claimed shows more", record)
	}
}

func lanesDiffer(t *testing.T, f *fixture) {
	f.enqueue(
		newRun(),
		newRun(func(r *store.NewRun) { r.Queue = "other" }),
		newRun(func(r *store.NewRun) { r.Job = "report" }),
		newRun(func(r *store.NewRun) { r.Job = "Mail" }),
		newRun(func(r *store.NewRun) { r.Priority = 1 }),
		newRun(func(r *store.NewRun) { r.Priority = -1 }),
		newRun(),
	)
	heads, err := f.store.Heads(f.ctx, store.Serves{
		Queues: []string{store.DefaultQueue, "other", "none"}, Jobs: []string{"mail", "report", "Mail", "none"},
	})
	if err != nil {
		t.Fatalf("Heads: %v", err)
	}
	lanes := map[store.LaneID]bool{}
	for _, head := range heads {
		lanes[head.Lane] = true
		if head.Lane <= 0 || !head.Waiting || head.In > 0 || head.DueAt.Location() != time.UTC || head.DueAt.After(f.now()) {
			t.Errorf("head %+v, want one that is due", head)
		}
	}
	if len(heads) != 6 || len(lanes) != 6 {
		t.Errorf("%d heads of %d lanes, want 6: %+v", len(heads), len(lanes), heads)
	}
}

func orderOfOneCall(t *testing.T, f *fixture) {
	runs := newRuns(500)
	f.enqueue(runs...)
	_, claimed := f.claim(newWorker("w1"), len(runs))
	if len(claimed) != len(runs) {
		t.Fatalf("claimed %d runs, want %d", len(claimed), len(runs))
	}
	for i := range claimed {
		if claimed[i].ID != runs[i].ID {
			t.Fatalf("run %d of the claim is not run %d of the enqueue", i, i)
		}
	}
}
