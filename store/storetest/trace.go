package storetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func traceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a run is claimed with the trace it was enqueued with": tracesExact,
		"a claim asked again returns the same traces":          tracesAgain,
		"a repeated enqueue leaves the trace as it is":         traceOfARepeat,
		"a trace that may not be stored is refused":            tracesRefused,
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
