package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func auditTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"changes are listed newest first, by kind, subject and cursor":   listChanges,
		"changes are listed by actor, action and time":                   narrowChanges,
		"a bulk change is one row, with its filter and number of runs":   auditBulk,
		"a bulk change that is repeated is counted once":                 auditBulkAgain,
		"changes older than the audit is kept are deleted, by the sweep": sweepAudit,
	}
}

func (f *fixture) changes(filter store.ChangeFilter) []store.Change {
	f.t.Helper()
	page, err := f.store.Changes(f.ctx, filter)
	if err != nil {
		f.t.Fatalf("Changes: %v", err)
	}
	return page.Changes
}

func listChanges(t *testing.T, f *fixture) {
	runs := newRuns(5)
	f.enqueue(runs...)
	for _, run := range runs {
		f.operate(store.CancelRuns, run.ID)
	}
	if err := f.store.SetQueue(f.ctx, "slow", store.PauseQueue, "bob"); err != nil {
		t.Fatal(err)
	}
	var seen []string
	filter := store.ChangeFilter{Limit: 4}
	for {
		page := f.changes(filter)
		for _, c := range page {
			seen = append(seen, c.Subject)
		}
		if len(page) < filter.Limit {
			break
		}
		filter.Before = page[len(page)-1].ID
	}
	want := []string{"slow"}
	for _, run := range slices.Backward(runs) {
		want = append(want, run.ID.String())
	}
	if !slices.Equal(seen, want) {
		t.Errorf("changes of %v, want %v", seen, want)
	}
	if queue := f.changes(store.ChangeFilter{Kind: "queue"}); len(queue) != 1 || queue[0].Action != "pause" || queue[0].Actor != "bob" {
		t.Errorf("changes %+v", queue)
	}
	if _, err := f.store.Changes(f.ctx, store.ChangeFilter{Limit: 201}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("limit 201: %v", err)
	}
}

func narrowChanges(t *testing.T, f *fixture) {
	for i, queue := range []string{"a", "b", "c"} {
		by := []string{"ann", "bob"}[i%2]
		for _, action := range []store.QueueAction{store.PauseQueue, store.ResumeQueue} {
			if err := f.store.SetQueue(f.ctx, queue, action, by); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.advance(2 * time.Hour)
	since := f.now().Add(-time.Hour)
	if err := f.store.SetQueue(f.ctx, "a", store.PauseQueue, "bob"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		filter store.ChangeFilter
		want   string
	}{
		{store.ChangeFilter{By: "ann"}, "c resume, c pause, a resume, a pause"},
		{store.ChangeFilter{By: "bob", Action: "pause"}, "a pause, b pause"},
		{store.ChangeFilter{Action: "resume", Kind: "queue"}, "c resume, b resume, a resume"},
		{store.ChangeFilter{Kind: "queue", Subject: "a", By: "bob"}, "a pause"},
		{store.ChangeFilter{Since: since}, "a pause"},
		{store.ChangeFilter{Since: since, By: "ann"}, ""},
		{store.ChangeFilter{By: "eve"}, ""},
	} {
		var got []string
		for _, c := range f.changes(test.filter) {
			got = append(got, c.Subject+" "+c.Action)
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%+v: %q, want %q", test.filter, text, test.want)
		}
	}
	if _, err := f.store.Changes(f.ctx, store.ChangeFilter{By: "a\x00"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("by with NUL: %v", err)
	}
}

func auditBulk(t *testing.T, f *fixture) {
	runs := newRuns(6)
	f.enqueue(runs...)
	_, running := f.claimOne(newWorker("w1"))
	bulk := &store.BulkChange{ID: uuid.New(), Filter: store.Filter{Queues: []string{"default"}, States: []store.State{store.Pending, store.Running}, Tag: "red"}}
	step := func(action store.RunAction, bulk *store.BulkChange, runs ...store.NewRun) {
		t.Helper()
		command := store.RunCommand{Action: action, Reason: reason, By: "ann", Bulk: bulk}
		for _, run := range runs {
			command.Runs = append(command.Runs, run.ID)
		}
		if _, err := f.store.Operate(f.ctx, command); err != nil {
			t.Fatal(err)
		}
	}
	step(store.CancelRuns, bulk, runs[:3]...)
	step(store.CancelRuns, bulk, runs[3:]...)
	step(store.CancelRuns, bulk, runs[:2]...) // nothing is left to do
	changes := f.changes(store.ChangeFilter{})
	if len(changes) != 1 {
		t.Fatalf("changes %+v, want one", changes)
	}
	want := store.Change{ID: changes[0].ID, At: changes[0].At, Actor: "ann", Kind: "bulk", Subject: bulk.ID.String(), Action: "cancel", Runs: 6}
	detail := string(changes[0].Detail)
	changes[0].Detail = nil
	if got := changes[0]; got.ID != want.ID || got.Actor != want.Actor || got.Kind != want.Kind || got.Subject != want.Subject || got.Action != want.Action || got.Runs != want.Runs {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, part := range []string{`"reason":"` + reason + `"`, `"queues":["default"]`, `"states":["pending","running"]`, `"tag":"red"`} {
		if !strings.Contains(strings.ReplaceAll(detail, ": ", ":"), part) {
			t.Errorf("detail %s, want %s in it", detail, part)
		}
	}
	f.did(store.CancelRuns, running.ID, store.CancelRequested, store.Running)

	for _, action := range []store.RunAction{store.RetryRuns, store.DeleteRuns} { // each has a row of its own
		step(action, &store.BulkChange{ID: uuid.New()}, runs...)
		if first := f.changes(store.ChangeFilter{})[0]; first.Action != string(action) || first.Runs != 5 || first.Kind != "bulk" {
			t.Errorf("%s: %+v, want 5 runs", action, first)
		}
	}
	_, err := f.store.Operate(f.ctx, store.RunCommand{Action: store.CancelRuns, By: "ann", Bulk: &store.BulkChange{}})
	invalid(t, "Operate", err)
}

func auditBulkAgain(t *testing.T, f *fixture) {
	runs := newRuns(3, func(r *store.NewRun) { r.Key = store.Key{Text: "k" + r.ID.String()} })
	f.enqueue(runs...)
	bulk := &store.BulkChange{ID: uuid.New()}
	for range 2 { // as after an answer that was lost
		_, err := f.store.Operate(f.ctx, store.RunCommand{Action: store.DeleteRuns, Runs: []store.RunID{runs[0].ID, runs[1].ID, runs[2].ID}, By: "ann", Bulk: bulk})
		if err != nil {
			t.Fatal(err)
		}
	}
	if changes := f.changes(store.ChangeFilter{}); len(changes) != 1 || changes[0].Runs != 3 {
		t.Errorf("changes %+v, want one of 3 runs", changes)
	}
}

func sweepAudit(t *testing.T, f *fixture) {
	pause := func(queue string) {
		t.Helper()
		if err := f.store.SetQueue(f.ctx, queue, store.PauseQueue, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	pause("old")
	f.advance(3 * time.Hour)
	pause("new")
	request := sweeper()
	f.sweep(request) // it does not say how long
	if changes := f.changes(store.ChangeFilter{}); len(changes) != 2 {
		t.Errorf("changes %+v, want both", changes)
	}
	request.RetentionAudit = 2 * time.Hour
	f.advance(time.Minute) // until there is something to sweep
	f.sweep(request)
	if changes := f.changes(store.ChangeFilter{}); len(changes) != 1 || changes[0].Subject != "new" {
		t.Errorf("changes %+v, want the new one", changes)
	}
}
