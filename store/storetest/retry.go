package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func retryDead(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.MaxAttempts = 2 })
	f.isolate(run)
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{run.Queue}, Jobs: []string{run.Job}})
	if err != nil {
		t.Fatal(err)
	}
	request := f.request(newWorker("w1"), 1)
	for _, head := range heads {
		if head.Lane < 0 {
			request.Steps, request.Alone = []store.Step{{Lane: head.Lane, Take: 1}}, true
		}
	}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%v, %v", claimed, err)
	}
	death := one(request.Claim, request.Worker, run.ID, store.Outcome{Kind: store.Death, Error: "bad"})
	f.settle(death)
	f.ended(run.ID, store.Dead, "bad")
	f.did(store.RetryRuns, run.ID, store.RunChanged, store.Pending)
	record := f.record(run.ID)
	if record.State != store.Pending || record.Attempt != 0 || record.CrashCount != 0 || record.Isolated || record.FinishedAt != nil ||
		record.DueAt.After(f.now()) {
		t.Errorf("retried: %+v", record)
	}
	if len(record.Attempts) != 3 {
		t.Errorf("the history stays: %+v", record.Attempts)
	}
	if verdicts := f.settle(death); verdicts[0] != store.Rejected {
		t.Errorf("a late settle: %v", verdicts)
	}
	if counts := f.counts(); counts[store.Dead] != 0 || counts[store.Pending] != 1 {
		t.Errorf("counts %v", counts)
	}
	worker := newWorker("w2")
	claim, again := f.claimOne(worker)
	if again.Attempt != 1 || again.Fence <= claimed[0].Fence {
		t.Errorf("claimed %+v after %+v", again, claimed[0])
	}
	f.settle(one(claim, worker, run.ID, success()))
	f.ended(run.ID, store.Succeeded, "")
}

func retryOthers(_ *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.ExpiresAt = f.now().Add(time.Minute) })
	f.enqueue(run)
	f.did(store.RetryRuns, run.ID, store.RunUnchanged, store.Pending)
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.did(store.RetryRuns, run.ID, store.RunUnchanged, store.Running)
	f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Cancellation, Error: "expired"}))
	f.advance(time.Hour)
	f.did(store.RetryRuns, run.ID, store.RunChanged, store.Pending)
	claim, claimed := f.claimOne(worker)
	if claimed.Expired {
		f.t.Error("a retried run has no expiry any more")
	}
	f.settle(one(claim, worker, run.ID, success()))
	f.did(store.RetryRuns, run.ID, store.RunConflict, store.Succeeded)
}

func retryAgain(_ *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	worker := newWorker("w1")
	for range 3 {
		f.did(store.CancelRuns, run.ID, store.RunChanged, store.Cancelled)
		f.did(store.RetryRuns, run.ID, store.RunChanged, store.Pending)
		claim, _ := f.claimOne(worker)
		f.did(store.CancelRuns, run.ID, store.CancelRequested, store.Running)
		f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Failure, Error: "bad"}))
		f.ended(run.ID, store.Cancelled, reason)
		f.did(store.RetryRuns, run.ID, store.RunChanged, store.Pending)
	}
	claim, _ := f.claimOne(worker)
	f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.HandedBack}))
	if record := f.record(run.ID); record.State != store.Pending {
		f.t.Errorf("the old request is forgotten: %+v", record)
	}
}

func deleteRuns(t *testing.T, f *fixture) {
	runs := newRuns(5)
	f.enqueue(runs...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 4)
	ids := []store.RunID{runs[4].ID}
	for _, c := range claimed {
		ids = append(ids, c.ID)
	}
	f.settle(store.Settlement{Claim: claim, Worker: worker, Runs: []store.Settled{
		{ID: ids[1], Outcome: success()}, {ID: ids[2], Outcome: store.Outcome{Kind: store.Death, Error: "bad"}},
		{ID: ids[3], Outcome: store.Outcome{Kind: store.Cancellation, Error: "no"}},
	}})
	for i, state := range []store.State{store.Pending, store.Succeeded, store.Dead, store.Cancelled} {
		f.did(store.DeleteRuns, ids[i], store.RunChanged, state)
		f.did(store.DeleteRuns, ids[i], store.RunNotFound, 0)
		if _, err := f.store.Run(f.ctx, ids[i]); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a deleted run: %v", err)
		}
	}
	f.did(store.DeleteRuns, ids[4], store.RunConflict, store.Running)
	counts := f.counts()
	for _, state := range store.States() {
		if state != store.Running && counts[state] != 0 {
			t.Errorf("counts %v", counts)
		}
	}
	if page := f.list(store.Filter{}); len(page.Runs) != 1 {
		t.Errorf("listed %+v", page.Runs)
	}
	f.settle(store.Settlement{Claim: claim, Worker: worker, Last: true, Runs: []store.Settled{{ID: ids[4], Outcome: success()}}})
	if _, left := f.claim(worker, 10); len(left) != 0 {
		t.Errorf("claimed %+v", left)
	}
	f.enqueue(runs[4]) // its id is free again
	if record := f.record(runs[4].ID); record.State != store.Pending || len(record.Attempts) != 0 {
		t.Errorf("%+v", record)
	}
}

func orderAudited(t *testing.T, f *fixture) {
	run, running := newRun(), newRun()
	f.enqueue(running)
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.enqueue(run)
	for range 2 {
		f.operate(store.CancelRuns, run.ID, running.ID, store.NewRunID())
	}
	f.operate(store.DeleteRuns, running.ID)
	f.settle(one(claim, worker, running.ID, success()))
	f.operate(store.CancelRuns, running.ID)
	f.operate(store.RetryRuns, run.ID, running.ID)
	f.operate(store.DeleteRuns, run.ID)
	words := func(id store.RunID) (actions []string) {
		for _, c := range f.changes(store.ChangeFilter{Kind: "run", Subject: id.String()}) {
			if c.Actor != "ann" || !strings.Contains(string(c.Detail), reason) || c.At.After(f.now()) || c.At.Before(f.now().Add(-time.Minute)) {
				t.Errorf("change %+v", c)
			}
			actions = append(actions, c.Action)
		}
		return actions
	}
	if got := words(run.ID); !slices.Equal(got, []string{"delete", "retry", "cancel"}) {
		t.Errorf("audited %v", got)
	}
	if got := words(running.ID); !slices.Equal(got, []string{"cancel"}) {
		t.Errorf("audited %v", got)
	}
	if all := f.changes(store.ChangeFilter{Kind: "run"}); len(all) != 4 {
		t.Errorf("audited %+v", all)
	}
}

func revealed(t *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	for _, reason := range []string{"ticket 4711", ""} {
		if err := f.store.Reveal(f.ctx, run.ID, reason, "ann"); err != nil {
			t.Errorf("Reveal: %v", err)
		}
	}
	changes := f.changes(store.ChangeFilter{Kind: "run", Subject: run.ID.String()})
	if len(changes) != 2 || changes[0].Action != "reveal" || changes[0].Actor != "ann" || changes[0].Detail != nil || string(changes[1].Detail) != `{"reason":"ticket 4711"}` {
		t.Errorf("audited %+v", changes)
	}
	if err := f.store.Reveal(f.ctx, store.NewRunID(), "", "ann"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of a run that is not there: %v", err)
	}
	if all := f.changes(store.ChangeFilter{Kind: "run"}); len(all) != 2 {
		t.Errorf("audited %+v", all)
	}
}

func sessionEnded(t *testing.T, f *fixture) {
	for _, session := range []string{"one", "another", "one"} {
		if err := f.store.EndSession(f.ctx, session, "ann@192.0.2.7 (session)"); err != nil {
			t.Errorf("EndSession: %v", err)
		}
	}
	changes := f.changes(store.ChangeFilter{Kind: store.KindSession, Subject: "one"})
	if len(changes) != 1 || changes[0].Action != "end" || changes[0].Actor != "ann@192.0.2.7 (session)" || changes[0].Detail != nil {
		t.Errorf("audited %+v", changes)
	}
	if all := f.changes(store.ChangeFilter{Kind: store.KindSession}); len(all) != 2 {
		t.Errorf("audited %+v", all)
	}
	for _, bad := range []string{"", "a\x00b", "a\xffb", "a\nb", strings.Repeat("x", store.MaxNameLength+1)} {
		if err := f.store.EndSession(f.ctx, bad, "ann"); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("session %q: %v", bad, err)
		}
	}
	if err := f.store.EndSession(f.ctx, "one", ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without a name: %v", err)
	}
}

func rerun(t *testing.T, f *fixture) {
	of, made := newRun(), newRun(func(r *store.NewRun) { r.Args = []byte(`{"other": true}`) })
	f.enqueue(of)
	for _, existing := range []bool{false, true} {
		receipt, err := f.store.Rerun(f.ctx, of.ID, made, "ann")
		if err != nil || receipt != (store.Receipt{ID: made.ID, Existing: existing}) {
			t.Errorf("%+v, %v", receipt, err)
		}
	}
	if record := f.record(made.ID); string(record.Args) != `{"other": true}` || record.State != store.Pending {
		t.Errorf("%+v", record)
	}
	changes := f.changes(store.ChangeFilter{Kind: "run", Subject: of.ID.String()})
	if len(changes) != 1 || changes[0].Action != "rerun" || !strings.Contains(string(changes[0].Detail), made.ID.String()) {
		t.Errorf("audited %+v", changes)
	}
	if _, err := f.store.Rerun(f.ctx, of.ID, newRun(func(r *store.NewRun) { r.Args = []byte(`{`) }), "ann"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("bad args: %v", err)
	}
	if _, err := f.store.Rerun(f.ctx, of.ID, newRun(), ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without the name of an operator: %v", err)
	}
}
