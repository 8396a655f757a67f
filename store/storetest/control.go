package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func operateTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a pending run is cancelled immediately, also an isolated one":       cancelPending,
		"a cancelled run is never claimed":                                   cancelledIsNotClaimed,
		"a running run that is to be cancelled ends so, unless it ends":      cancelRunning,
		"the reason of the first request is kept":                            cancelTwice,
		"a run that is to be cancelled is cancelled by a reclaim":            cancelReclaimed,
		"a reclaim by the crash rule is stronger than a cancel":              cancelCrashDead,
		"only the worker that has a run is notified of its cancel":           cancelsReported,
		"a claim that is asked again is notified of a cancel":                cancelsReportedAgain,
		"a retried run begins again and a late settle is refused":            retryDead,
		"only dead and cancelled runs are retried":                           retryOthers,
		"a retried run can be cancelled and retried again":                   retryAgain,
		"a run is deleted with all that belongs to it":                       deleteRuns,
		"an order answers for every run, in order, also for one named twice": orderAnswers,
		"an order that makes no sense is refused and changes nothing":        orderRefused,
		"what is changed is audited once, what is not is not":                orderAudited,
		"what is hidden of a run is shown once the audit says to whom":       revealed,
		"a session ends once, and the audit says by whom":                    sessionEnded,
		"a rerun is a new run, audited under the one it is made after":       rerun,
	}
}

const reason = "not wanted any more"

// operate makes an order and returns what it did.
func (f *fixture) operate(action store.RunAction, ids ...store.RunID) []store.ChangedRun {
	f.t.Helper()
	changed, err := f.store.Operate(f.ctx, store.RunCommand{Action: action, Runs: ids, Reason: reason, By: "ann"})
	if err != nil {
		f.t.Fatalf("Operate: %v", err)
	}
	if len(changed) != len(ids) {
		f.t.Fatalf("%d runs, %d answers", len(ids), len(changed))
	}
	return changed
}

// did makes an order for one run and wants an answer.
func (f *fixture) did(action store.RunAction, id store.RunID, did store.ChangeResult, state store.State) {
	f.t.Helper()
	if got, want := f.operate(action, id)[0], (store.ChangedRun{ID: id, Result: did, State: state}); got != want {
		f.t.Errorf("%s: %+v, want %+v", action, got, want)
	}
}

// ended wants a run to have ended so.
func (f *fixture) ended(id store.RunID, state store.State, why string) store.Record {
	f.t.Helper()
	record := f.record(id)
	if record.State != state || text(record.Error) != why || record.FinishedAt == nil {
		f.t.Errorf("the run is %v, %q, finished %v; want %v, %q", record.State, text(record.Error), record.FinishedAt, state, why)
	}
	if page := f.list(store.Filter{States: []store.State{state}}); !slices.ContainsFunc(page.Runs, func(r store.Record) bool { return r.ID == id }) {
		f.t.Errorf("the run is not among the %v ones", state)
	}
	return record
}

// isolate crashes the run that waits first until it is isolated.
func (f *fixture) isolate(run store.NewRun) {
	f.t.Helper()
	f.enqueue(run)
	for range 2 {
		f.claimOne(newWorker("crasher"))
		f.advance(time.Minute)
		f.reclaim()
	}
	if record := f.record(run.ID); !record.Isolated {
		f.t.Fatalf("not isolated: %+v", record)
	}
}

func cancelPending(_ *testing.T, f *fixture) {
	isolated, plain := newRun(), newRun()
	f.isolate(isolated)
	f.enqueue(plain, newRun())
	for _, run := range []store.NewRun{plain, isolated} {
		f.did(store.CancelRuns, run.ID, store.RunChanged, store.Cancelled)
		f.ended(run.ID, store.Cancelled, reason)
		f.did(store.CancelRuns, run.ID, store.RunUnchanged, store.Cancelled)
	}
	if counts := f.counts(); counts[store.Cancelled] != 2 || counts[store.Pending] != 1 {
		f.t.Errorf("counts %v", counts)
	}
}

func cancelledIsNotClaimed(t *testing.T, f *fixture) {
	runs := newRuns(3)
	f.enqueue(runs...)
	f.did(store.CancelRuns, runs[1].ID, store.RunChanged, store.Cancelled)
	_, claimed := f.claim(newWorker("w1"), 10)
	if len(claimed) != 2 || claimed[0].ID == runs[1].ID || claimed[1].ID == runs[1].ID {
		t.Errorf("claimed %+v", claimed)
	}
}

func cancelRunning(t *testing.T, f *fixture) {
	outcomes := map[store.RunID]store.Outcome{}
	runs := newRuns(7)
	f.enqueue(runs...)
	worker := newWorker("w1")
	claim, _ := f.claim(worker, len(runs))
	kinds := []store.Outcome{
		{Kind: store.Success}, {Kind: store.Success, Result: []byte(`1`)}, {Kind: store.Death, Error: "bad"},
		{Kind: store.Cancellation, Error: "own"}, {Kind: store.Failure, Error: "again", After: time.Hour},
		{Kind: store.Snoozed, After: time.Hour}, {Kind: store.HandedBack},
	}
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	for i, run := range runs {
		f.did(store.CancelRuns, run.ID, store.CancelRequested, store.Running)
		outcomes[run.ID] = kinds[i]
		settlement.Runs = append(settlement.Runs, store.Settled{ID: run.ID, Outcome: kinds[i]})
	}
	for i, verdict := range f.settle(settlement) {
		if verdict != store.Applied {
			t.Errorf("%v: verdict %d", kinds[i].Kind, verdict)
		}
	}
	f.ended(runs[0].ID, store.Succeeded, "")
	f.ended(runs[1].ID, store.Succeeded, "")
	f.ended(runs[2].ID, store.Dead, "bad")
	f.ended(runs[3].ID, store.Cancelled, "own")
	failed := f.ended(runs[4].ID, store.Cancelled, reason)
	if len(failed.Attempts) != 1 || text(failed.Attempts[0].Error) != "again" || failed.Attempt != 1 {
		t.Errorf("the failed attempt is kept: %+v", failed)
	}
	for _, run := range runs[5:] {
		if record := f.ended(run.ID, store.Cancelled, reason); record.Attempt != 0 || len(record.Attempts) != 0 {
			t.Errorf("the attempt is refunded: %+v", record)
		}
	}
	if again := f.settle(settlement); slices.ContainsFunc(again, func(v store.Verdict) bool { return v != store.AlreadyApplied }) {
		t.Errorf("a repeat has landed: %v", again)
	}
	f.advance(2 * time.Hour)
	if _, claimed := f.claim(worker, 10); len(claimed) != 0 {
		t.Errorf("claimed %+v", claimed)
	}
}

func cancelTwice(_ *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.did(store.CancelRuns, run.ID, store.CancelRequested, store.Running)
	changed, err := f.store.Operate(f.ctx, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{run.ID}, By: "bob"})
	if err != nil || changed[0].Result != store.CancelRequested {
		f.t.Errorf("%+v, %v", changed, err)
	}
	f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.HandedBack}))
	f.ended(run.ID, store.Cancelled, reason)
	unnamed := newRun()
	f.enqueue(unnamed)
	if _, err := f.store.Operate(f.ctx, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{unnamed.ID}, By: "bob"}); err != nil {
		f.t.Error(err)
	}
	f.ended(unnamed.ID, store.Cancelled, "cancelled by bob")
}

func cancelReclaimed(t *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.did(store.CancelRuns, run.ID, store.CancelRequested, store.Running)
	f.advance(time.Minute)
	done := f.reclaim()
	if len(done.Runs) != 1 || done.Runs[0].State != store.Cancelled {
		t.Errorf("reclaimed %+v", done.Runs)
	}
	record := f.ended(run.ID, store.Cancelled, reason)
	if record.CrashCount != 1 || len(record.Attempts) != 1 || record.Attempts[0].Outcome != store.Crash {
		t.Errorf("the record does not show one crash: %+v", record)
	}
	if verdicts := f.settle(one(claim, worker, run.ID, success())); verdicts[0] != store.Rejected {
		t.Errorf("verdict %v", verdicts)
	}
	if _, claimed := f.claim(worker, 10); len(claimed) != 0 {
		t.Errorf("claimed %+v", claimed)
	}
	f.reclaim() // sweeps what was left to report
	if requests, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claim}); err != nil || len(requests) != 0 {
		t.Errorf("%v, %v", requests, err)
	}
}

func cancelCrashDead(_ *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.OnCrash = store.CrashDead })
	f.enqueue(run)
	f.claimOne(newWorker("w1"))
	f.did(store.CancelRuns, run.ID, store.CancelRequested, store.Running)
	f.advance(time.Minute)
	f.reclaim()
	f.ended(run.ID, store.Dead, "its worker crashed, and its crash policy is dead")
}

func cancelsReported(t *testing.T, f *fixture) {
	f.enqueue(newRuns(4)...)
	mine, runs := f.claim(newWorker("w1"), 2)
	others, others2 := f.claim(newWorker("w2"), 2)
	requested := func(claims ...lease.ClaimID) []store.CancelRequest {
		requests, err := f.store.CancelRequests(f.ctx, claims)
		if err != nil {
			t.Fatal(err)
		}
		return requests
	}
	if requests := requested(mine, others, lease.NewClaimID()); len(requests) != 0 {
		t.Errorf("requests %+v", requests)
	}
	f.operate(store.CancelRuns, runs[1].ID, others2[0].ID)
	want := []store.CancelRequest{{Claim: mine, Run: runs[1].ID, Reason: reason}}
	if requests := requested(mine); !slices.Equal(requests, want) {
		t.Errorf("requests %+v, want %+v", requests, want)
	}
	if requests := requested(mine, others); len(requests) != 2 {
		t.Errorf("requests %+v", requests)
	}
	if requests := requested(); len(requests) != 0 {
		t.Errorf("requests %+v", requests)
	}
}

func cancelsReportedAgain(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	worker := newWorker("w1")
	claim, runs := f.claim(worker, 2)
	f.operate(store.CancelRuns, runs[0].ID)
	for range 2 {
		requests, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claim})
		if err != nil || len(requests) != 1 {
			t.Errorf("%v, %v", requests, err)
		}
	}
	f.settle(store.Settlement{Claim: claim, Worker: worker, Runs: []store.Settled{{ID: runs[0].ID, Outcome: success()}}})
	requests, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claim})
	if err != nil || len(requests) != 0 {
		t.Errorf("a run that has ended still has requests: %v, %v", requests, err)
	}
}

func orderAnswers(t *testing.T, f *fixture) {
	runs := newRuns(3)
	f.enqueue(runs...)
	missing := store.NewRunID()
	got := f.operate(store.CancelRuns, runs[2].ID, missing, runs[0].ID, runs[2].ID, missing)
	want := []store.ChangedRun{
		{ID: runs[2].ID, Result: store.RunChanged, State: store.Cancelled}, {ID: missing, Result: store.RunNotFound},
		{ID: runs[0].ID, Result: store.RunChanged, State: store.Cancelled}, {ID: runs[2].ID, Result: store.RunChanged, State: store.Cancelled},
		{ID: missing, Result: store.RunNotFound},
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers %+v, want %+v", got, want)
	}
	if got := f.operate(store.RetryRuns); len(got) != 0 {
		t.Errorf("an empty order: %+v", got)
	}
}

func orderRefused(t *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	ids := []store.RunID{run.ID}
	many := make([]store.RunID, store.MaxCommandRuns+1)
	for i, order := range []store.RunCommand{
		{Action: "kill", Runs: ids, By: "ann"}, {Runs: ids, By: "ann"}, {Action: store.CancelRuns, Runs: ids},
		{Action: store.CancelRuns, Runs: many, By: "ann"}, {Action: store.CancelRuns, Runs: ids, By: "a\x00"},
		{Action: store.CancelRuns, Runs: ids, By: "ann", Reason: "\x00"}, {Action: store.CancelRuns, Runs: ids, By: "ann", Reason: "\xff"},
		{Action: store.CancelRuns, Runs: ids, By: "ann", Reason: fmt.Sprintf("%01001d", 7)},
	} {
		if _, err := f.store.Operate(f.ctx, order); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("order %d: %v, want ErrInvalid", i, err)
		}
	}
	if record := f.record(run.ID); record.State != store.Pending {
		t.Errorf("the run is %v", record.State)
	}
}
