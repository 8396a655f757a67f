package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func traceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a run is claimed with the trace it was enqueued with":  tracesExact,
		"a claim asked again returns the same traces":           tracesAgain,
		"a repeated enqueue leaves the trace as it is":          traceOfARepeat,
		"a trace that may not be stored is refused":             tracesRefused,
		"metadata, tags and key are on record and in the claim": notesExact,
		"a schedule hands its name and metadata to its runs":    notesOfSchedules,
		"a run that is replaced has the metadata of the last":   notesReplaced,
		"metadata within its bounds is stored, other refused":   notesBounded,
		"callers cannot change metadata that is stored":         notesNotShared,
	}
}

const exampleTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// tracesOf claims everything and returns the traces by run.
func (f *fixture) tracesOf(n int) map[store.RunID]string {
	f.t.Helper()
	_, claimed := f.claim(newWorker("w1"), n)
	if len(claimed) != n {
		f.t.Fatalf("claimed %d runs, want %d", len(claimed), n)
	}
	traces := map[store.RunID]string{}
	for _, c := range claimed {
		traces[c.ID] = c.Trace
	}
	return traces
}

func traced(trace string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Trace = trace }
}

func tracesExact(t *testing.T, f *fixture) {
	// Some with and some without in one call, so that none can be stored with
	// another run; and a call in which none has one.
	var runs []store.NewRun
	for i, trace := range []string{"", exampleTrace, "", "{},\"'\\;NULL", "null", "", strings.Repeat("~", store.MaxTraceSize)} {
		runs = append(runs, newRun(traced(trace)))
		if i%2 == 0 {
			runs[i].Tags = []string{"tag"}
		}
	}
	f.enqueue(runs...)
	plain := newRuns(3)
	f.enqueue(plain...)
	got := f.tracesOf(len(runs) + len(plain))
	for _, run := range append(runs, plain...) {
		if got[run.ID] != run.Trace {
			t.Errorf("trace %q, want %q", got[run.ID], run.Trace)
		}
	}
}

func tracesAgain(t *testing.T, f *fixture) {
	run := newRun(traced(exampleTrace))
	f.enqueue(run, newRun())
	request := f.request(newWorker("w1"), 2)
	for range 2 {
		claimed, err := f.store.Claim(f.ctx, request)
		if err != nil || len(claimed) != 2 {
			t.Fatalf("claimed %d runs (%v), want 2", len(claimed), err)
		}
		for _, c := range claimed {
			if want := map[bool]string{true: exampleTrace}[c.ID == run.ID]; c.Trace != want {
				t.Errorf("trace %q, want %q", c.Trace, want)
			}
		}
	}
}

func traceOfARepeat(t *testing.T, f *fixture) {
	run := newRun(traced(exampleTrace))
	f.enqueue(run)
	run.Trace = "another"
	if receipts, err := f.store.Enqueue(f.ctx, run); err != nil || !receipts[0].Existing {
		t.Fatalf("Enqueue again: %v, %v", receipts, err)
	}
	if got := f.tracesOf(1)[run.ID]; got != exampleTrace {
		t.Errorf("trace %q, want that of the first enqueue", got)
	}
}

func tracesRefused(t *testing.T, f *fixture) {
	for _, trace := range []string{strings.Repeat("x", store.MaxTraceSize+1), "a\nb", "a\x00", "é", "\xff"} {
		_, err := f.store.Enqueue(f.ctx, newRun(), newRun(traced(trace)))
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "trace") {
			t.Errorf("trace %.20q: %v, want it refused", trace, err)
		}
	}
	if got := f.counts()[store.Pending]; got != 0 {
		t.Errorf("%d runs were stored", got)
	}
}

// noted gives a run tags and metadata.
func noted(metadata store.Metadata, tags ...string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Metadata, r.Tags = metadata, tags }
}

// wantNotes compares a run's record, and what a claim says of it, with what was
// enqueued.
func (f *fixture) wantNotes(claimed store.ClaimedRun, want store.NewRun, schedule string) {
	f.t.Helper()
	if claimed.Key != want.Key.Text || claimed.Schedule != schedule || !slices.Equal(claimed.Tags, want.Tags) || !maps.Equal(claimed.Metadata, want.Metadata) {
		f.t.Errorf("claimed with key %q, schedule %q, tags %q, metadata %v; want %q, %q, %q, %v",
			claimed.Key, claimed.Schedule, claimed.Tags, claimed.Metadata, want.Key.Text, schedule, want.Tags, want.Metadata)
	}
	if got := f.record(want.ID); !maps.Equal(got.Metadata, want.Metadata) || !slices.Equal(got.Tags, append([]string{}, want.Tags...)) {
		f.t.Errorf("on record with tags %q, metadata %v; want %q, %v", got.Tags, got.Metadata, want.Tags, want.Metadata)
	}
}

func notesExact(t *testing.T, f *fixture) {
	tricky := store.Metadata{`quote "`: `{},"'\;NULL`, "empty": "", "世界": "👋🏽\n\t<&>", "null": "null"}
	acme := store.Metadata{"tenant": "acme"}
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitSemaphore, Max: 10})
	calls := [][]store.NewRun{
		newRuns(3, noted(acme, "a")), // alike
		newRuns(3),                   // alike, without any
		{newRun(noted(tricky)), newRun(), newRun(noted(acme, "b", "c"))},
		{newRun(noted(acme), with(unique("one")))},
		newRuns(2, noted(acme), with(store.Key{})),
		{newRun(noted(tricky, "x"), with(unique("two"))), newRun(with(unique("three"))), newRun(noted(acme))},
	}
	limitedRuns := []store.NewRun{newRun(noted(acme, "l"), limited("api")), newRun(limited("api")), newRun(noted(tricky), with(unique("four")), limited("api"))}
	all := map[store.RunID]store.NewRun{}
	for _, runs := range append(calls, limitedRuns) {
		f.enqueue(runs...)
		for _, run := range runs {
			all[run.ID] = run
		}
	}
	request := f.request(newWorker("w1"), 100)
	for range 2 { // the second time as a repeat
		claimed, err := f.store.Claim(f.ctx, request)
		if err != nil || len(claimed) != len(all)-len(limitedRuns) {
			t.Fatalf("claimed %d runs, %v", len(claimed), err)
		}
		for _, c := range claimed {
			f.wantNotes(c, all[c.ID], "")
		}
	}
	admitted := f.admit(10)
	if len(admitted.runs) != len(limitedRuns) {
		t.Fatalf("admitted %d limited runs", len(admitted.runs))
	}
	for _, c := range admitted.runs {
		f.wantNotes(c, all[c.ID], "")
	}
	page := f.list(store.Filter{Limit: 200})
	for _, listed := range page.Runs {
		if !maps.Equal(listed.Metadata, all[listed.ID].Metadata) {
			t.Errorf("listed with metadata %v, want %v", listed.Metadata, all[listed.ID].Metadata)
		}
	}
}

func notesOfSchedules(t *testing.T, f *fixture) {
	schedules := make([]store.Schedule, 3)
	for i := range schedules {
		schedules[i] = newSchedule(fmt.Sprintf("schedule-%d", i))
		schedules[i].Tags = []string{"nightly"}
		if i > 0 {
			schedules[i].Metadata = store.Metadata{"region": fmt.Sprint("eu-", i)}
		}
	}
	f.declare(schedules...)
	own := func(now time.Time, s store.Schedule) store.Decision {
		return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "once", Run: s.RunAt(now)}}}
	}
	f.materialize(10, in(time.Second))
	f.advance(2 * time.Second)
	f.materialize(10, own)
	asked := store.NewRunID()
	if err := f.store.RunSchedule(f.ctx, schedules[2].Name, asked, store.OverlapAllow, "ann"); err != nil {
		t.Fatalf("RunSchedule: %v", err)
	}
	_, claimed := f.claim(newWorker("w1"), 10)
	if len(claimed) != 4 {
		t.Fatalf("claimed %d runs, want 4", len(claimed))
	}
	for _, c := range claimed {
		i := slices.IndexFunc(schedules, func(s store.Schedule) bool { return s.Name == c.Schedule })
		if i < 0 {
			t.Fatalf("claimed a run of schedule %q", c.Schedule)
		}
		want := schedules[i].RunNow()
		want.ID = c.ID
		f.wantNotes(c, want, schedules[i].Name)
	}
	for i, record := range f.listed() {
		if !maps.Equal(record.Metadata, schedules[i].Metadata) {
			t.Errorf("schedule %s has metadata %v, want %v", record.Name, record.Metadata, schedules[i].Metadata)
		}
		edited := record.Schedule()
		edited.Metadata = store.Metadata{"edited": "yes"}
		if err := f.store.SaveSchedule(f.ctx, edited, "ann"); err != nil {
			t.Fatalf("SaveSchedule: %v", err)
		}
	}
	for _, record := range f.listed() {
		if record.Metadata["edited"] != "yes" || record.NextAt == nil {
			t.Errorf("edited schedule %+v, want the new metadata and the next occurrence kept", record)
		}
	}
}

func (f *fixture) listed() []store.ScheduleRecord {
	f.t.Helper()
	records, err := f.store.ListSchedules(f.ctx)
	if err != nil {
		f.t.Fatalf("ListSchedules: %v", err)
	}
	return records
}

func notesReplaced(t *testing.T, f *fixture) {
	first := newRun(with(replacing("k")), noted(store.Metadata{"version": "1"}))
	f.enqueue(first)
	second := newRun(with(replacing("k")), noted(store.Metadata{"version": "2"}, "t"))
	f.existing(first.ID, second)
	if got := f.record(first.ID).Metadata; got["version"] != "2" {
		t.Errorf("metadata %v, want that of the run that replaced it", got)
	}
	f.existing(first.ID, newRun(with(replacing("k"))))
	_, claimed := f.claimOne(newWorker("w1"))
	if claimed.Metadata != nil || claimed.Key != "k" || len(claimed.Tags) != 0 {
		t.Errorf("claimed %+v, want the key and nothing else", claimed)
	}
}

func notesBounded(t *testing.T, f *fixture) {
	most := store.Metadata{"a": strings.Repeat("\u00e9", (store.MaxMetadataSize-1)/2), strings.Repeat("n", store.MaxNameLength): ""}
	most["a"] = most["a"][:len(most["a"])-store.MaxNameLength]
	run := newRun(noted(most))
	f.enqueue(run)
	if got := f.record(run.ID).Metadata; !maps.Equal(got, most) {
		t.Errorf("metadata at its bound came back otherwise")
	}
	for name, bad := range map[string]store.Metadata{
		"too large":            {"a": strings.Repeat("x", store.MaxMetadataSize)},
		"no name":              {"": "x"},
		"a long name":          {strings.Repeat("n", store.MaxNameLength+1): "x"},
		"an equals sign":       {"a=b": "x"},
		"a control character":  {"a\n": "x"},
		"not UTF-8":            {"a": "\xff"},
		"a name not UTF-8":     {"\xff": "a"},
		"a NUL":                {"a": "x\x00"},
		"too many small names": tooMany(),
	} {
		if _, err := f.store.Enqueue(f.ctx, newRun(), newRun(noted(bad))); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "metadata") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
		s := newSchedule("refused")
		s.Metadata = bad
		if err := f.store.SaveSchedule(f.ctx, s, "ann"); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s, of a schedule: %v, want it refused", name, err)
		}
	}
	if got := f.counts()[store.Pending]; got != 1 {
		t.Errorf("%d runs were stored, want 1", got)
	}
}

func tooMany() store.Metadata {
	m := store.Metadata{}
	for i := range store.MaxMetadataSize / 4 {
		m[fmt.Sprintf("%05d", i)] = ""
	}
	return m
}

func notesNotShared(t *testing.T, f *fixture) {
	given := store.Metadata{"a": "untouched"}
	run := newRun(noted(given))
	f.enqueue(run)
	given["a"] = "!"
	request := f.request(newWorker("w1"), 1)
	for range 2 {
		claimed, err := f.store.Claim(f.ctx, request)
		if err != nil || len(claimed) != 1 || claimed[0].Metadata["a"] != "untouched" {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		claimed[0].Metadata["a"] = "!"
	}
	record := f.record(run.ID)
	if record.Metadata["a"] != "untouched" {
		t.Fatalf("metadata %v", record.Metadata)
	}
	record.Metadata["a"] = "!"
	if again := f.record(run.ID); again.Metadata["a"] != "untouched" {
		t.Errorf("metadata %v", again.Metadata)
	}
}
