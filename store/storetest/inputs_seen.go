package storetest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func inputAwaited(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.beginWait(store.NewWait{Holder: holder, Name: "shipped", Kind: store.StepInput})
	f.beginWait(store.NewWait{Holder: holder, Name: "asleep", Kind: store.StepSleep, For: time.Hour})
	f.mustRecord(newStep(holder, "step", `1`))
	f.park(worker, holder, "approved")
	_, other := f.held()
	f.beginWait(store.NewWait{Holder: other, Name: "running", Kind: store.StepInput})
	f.beginWait(store.NewWait{Holder: other, Name: "approved", Kind: store.StepInput})
	want := func(when string, filter store.Filter, wanted int) {
		t.Helper()
		filter.Limit = 10
		page, err := f.store.Runs(f.ctx, filter)
		if err != nil || len(page.Runs) != wanted || wanted == 1 && page.Runs[0].ID != holder.Run {
			t.Errorf("%s: %q is awaited by %+v, %v, want %d", when, filter.Awaits, page.Runs, err, wanted)
		}
		counts, err := f.store.CountMatching(f.ctx, filter)
		if err != nil || counts[store.Pending].N != int64(wanted) || counts[store.Running].N != 0 {
			t.Errorf("%s: %q is awaited by %+v, %v, want %d", when, filter.Awaits, counts, err, wanted)
		}
	}
	for name, wanted := range map[string]int{"approved": 1, "shipped": 1, "asleep": 0, "step": 0, "running": 0, "none": 0, "' --": 0} {
		for _, states := range [][]store.State{nil, {store.Pending}, {store.Pending, store.Running}, store.States()} {
			want("parked", store.Filter{Awaits: name, States: states}, wanted)
		}
		want("running", store.Filter{Awaits: name, States: []store.State{store.Running}}, 0)
		want("by id", store.Filter{Awaits: name, IDs: []store.RunID{holder.Run, other.Run}}, wanted)
	}
	f.send(approval(holder.Run, `1`))
	want("sent", store.Filter{Awaits: "approved"}, 0)
	want("sent", store.Filter{Awaits: "shipped"}, 1)
	f.operate(store.CancelRuns, holder.Run)
	want("cancelled", store.Filter{Awaits: "shipped"}, 0)
	if _, err := f.store.Runs(f.ctx, store.Filter{Awaits: "a\x00"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a name with NUL: %v", err)
	}
}

func inputAudited(t *testing.T, f *fixture) {
	_, holder := f.held()
	f.send(approval(holder.Run, `"of code"`))
	input := store.NewInput{Run: holder.Run, Name: "note", Value: []byte(`"canary"`), By: "eva"}
	for range 2 { // the second is no change
		f.send(input)
	}
	other := input
	other.Value = []byte(`"another"`)
	if _, err := f.store.Send(f.ctx, other); !errors.Is(err, store.ErrConflict) {
		t.Errorf("another value: %v, want ErrConflict", err)
	}
	f.wantSent(holder.Run, "note")
}

func inputNoticed(t *testing.T, f *fixture) {
	if survey := f.survey(); survey.Notices.N != 0 || survey.OldestNotice != nil {
		t.Errorf("nothing was sent: %+v", survey)
	}
	worker, holder := f.held()
	f.send(approval(holder.Run, `1`)) // while its run is executing
	f.advance(2 * time.Minute)
	survey := f.survey()
	if survey.Notices.N != 1 || survey.OldestNotice == nil {
		t.Fatalf("an input that nobody has looked at: %+v", survey)
	}
	if late := survey.At.Sub(*survey.OldestNotice); late < time.Minute || late > 3*time.Minute {
		t.Errorf("it has been to be looked at for %v", late)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Success}))
	f.release()
	if survey := f.survey(); survey.Notices.N != 0 || survey.OldestNotice != nil {
		t.Errorf("all was looked at: %+v", survey)
	}
}

// wantSent fails unless the audit log has one row for each of these inputs of a run, which eva has
// sent, newest first.
func (f *fixture) wantSent(run store.RunID, names ...string) {
	f.t.Helper()
	changes := f.changes(store.ChangeFilter{Kind: "run", Action: store.SendsInput})
	if len(changes) != len(names) {
		f.t.Fatalf("the audit log has %+v, want %q", changes, names)
	}
	for i, change := range changes {
		var detail map[string]any
		if err := json.Unmarshal(change.Detail, &detail); err != nil {
			f.t.Fatalf("detail %s: %v", change.Detail, err)
		}
		if change.Subject != run.String() || change.Actor != "eva" || len(detail) != 2 || detail["input"] != names[i] || detail["size"] != 8.0 {
			f.t.Errorf("the audit log has %+v with %s", change, change.Detail)
		}
	}
}
