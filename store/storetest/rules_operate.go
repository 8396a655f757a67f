package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// operateTable is what an operator's action makes of a run in each state, and
// whether the audit reports of it. "asked" is a running run that was asked to be
// cancelled before. gone is a run that there is not.
const operateTable = `
action state     result           becomes   audited
cancel pending   changed          cancelled yes
cancel running   cancel_requested running   yes
cancel asked     cancel_requested running   no
cancel succeeded unchanged        succeeded no
cancel dead      unchanged        dead      no
cancel cancelled unchanged        cancelled no
cancel gone      not_found        -         no
retry  pending   unchanged        pending   no
retry  running   unchanged        running   no
retry  asked     unchanged        running   no
retry  succeeded conflict         succeeded no
retry  dead      changed          pending   yes
retry  cancelled changed          pending   yes
retry  gone      not_found        -         no
delete pending   changed          pending   yes
delete running   conflict         running   no
delete asked     conflict         running   no
delete succeeded changed          succeeded yes
delete dead      changed          dead      yes
delete cancelled changed          cancelled yes
delete gone      not_found        -         no
`

// inState stores a run of a word of the table. free lets go of it: a running run
// ends, a pending one is deleted.
func (f *fixture) inState(run store.NewRun, word string) (id store.RunID, free func()) {
	f.t.Helper()
	none := func() {}
	if word == "gone" {
		return run.ID, none
	}
	f.enqueue(run)
	switch word {
	case "pending":
		return run.ID, func() { f.operate(store.DeleteRuns, run.ID) }
	case "cancelled":
		f.operate(store.CancelRuns, run.ID)
		return run.ID, none
	}
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	switch word {
	case "succeeded":
		f.settle(one(claim, worker, run.ID, success()))
		return run.ID, none
	case "dead":
		f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Death, Error: "boom"}))
		return run.ID, none
	case "asked":
		f.operate(store.CancelRuns, run.ID)
	}
	return run.ID, func() { f.settle(one(claim, worker, run.ID, success())) }
}

// audited counts what the audit reports of an action on a run.
func (f *fixture) audited(id store.RunID, action store.RunAction) (n int) {
	f.t.Helper()
	for _, c := range f.changes(store.ChangeFilter{Kind: "run", Subject: id.String()}) {
		if c.Action != string(action) {
			continue
		}
		n++
		if c.Actor != "ann" || !strings.Contains(string(c.Detail), reason) {
			f.t.Errorf("the audit says %+v", c)
		}
	}
	return n
}

func operateRule(t *testing.T, f *fixture) {
	for _, row := range rows(t, operateTable) {
		id, free := f.inState(newRun(), row["state"])
		action := store.RunAction(row["action"])
		before := f.audited(id, action)
		want := store.ChangedRun{ID: id, Result: store.ChangeResult(row["result"])}
		if row["becomes"] != "-" {
			want.State = stateOf(t, row["becomes"])
		}
		if got := f.operate(action, id)[0]; got != want {
			t.Errorf("%v: %+v, want %+v", row, got, want)
		}
		if got := f.audited(id, action) - before; got != map[string]int{"yes": 1}[row["audited"]] {
			t.Errorf("%v: the audit has %d rows more", row, got)
		}
		deleted := row["action"] == "delete" && row["result"] == "changed" || row["state"] == "gone"
		if deleted {
			f.wantGone(id)
		} else if record := f.record(id); record.State != want.State {
			t.Errorf("%v: the run is %v", row, record.State)
		}
		free()
		f.operate(store.DeleteRuns, id)
	}
}

// regainTable is whether a run that is retried gets its unique key back, by what
// the run is that holds it, and whether the time of that one's key is over.
const regainTable = `
holder    held result
pending   no   conflict
pending   yes  conflict
running   no   conflict
running   yes  conflict
succeeded no   changed
succeeded yes  conflict
dead      no   changed
dead      yes  conflict
cancelled no   changed
cancelled yes  conflict
gone      no   changed
itself    no   changed
itself    yes  changed
`

func regainRule(t *testing.T, f *fixture) {
	for _, row := range rows(t, regainTable) {
		key := row["holder"] + row["held"]
		held := map[string]time.Duration{"yes": time.Hour}[row["held"]]
		first := keyed(key, 0)
		if row["holder"] == "itself" {
			first = keyed(key, held)
		}
		f.holder(first)
		f.operate(store.CancelRuns, first.ID)
		want := store.ChangedRun{ID: first.ID, Result: store.RunChanged, State: store.Pending}
		free := func() {}
		if row["holder"] != "itself" {
			var holder store.RunID
			holder, free = f.inState(keyed(key, held), row["holder"])
			if row["result"] == "conflict" {
				want = store.ChangedRun{ID: first.ID, Result: store.RunConflict, State: store.Cancelled, Key: key, KeyHolder: holder}
			}
		}
		if got := f.operate(store.RetryRuns, first.ID)[0]; got != want {
			t.Errorf("%v: %+v, want %+v", row, got, want)
		}
		free()
		f.operate(store.DeleteRuns, first.ID)
	}
}
