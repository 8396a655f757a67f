package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func progressTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"zombie cannot report, in any way":                              zombieReports,
		"a report of a run that is not being executed is lost":          reportNotRunning,
		"what a report leaves out stays as it is":                       reportParts,
		"a note is shown although no fraction was reported":             reportNote,
		"a checkpoint survives the crash of its worker and a hand-back": checkpointSurvives,
		"a checkpoint comes back as it was sent":                        checkpointBytes,
		"a run without a checkpoint has none":                           checkpointNone,
		"a report and the reclaim of its run are one before the other":  reportRaces,
		"a success has log lines only where there are any":              logOfSuccess,
		"failures, deaths and cancellations keep their log lines":       logOfEnds,
		"hand-backs and snoozes keep no log lines":                      logOfPutBack,
		"runs can be listed by their ids":                               listChosen,
	}
}

func fractionOf(f float64) *float64 { return &f }

func noteOf(text string) *string { return &text }

func (f *fixture) report(claim lease.ClaimID, id store.RunID, report store.Report) error {
	return f.store.Report(f.ctx, store.Holder{Run: id, Claim: claim}, report)
}

func (f *fixture) mustReport(claim lease.ClaimID, id store.RunID, report store.Report) {
	f.t.Helper()
	if err := f.report(claim, id, report); err != nil {
		f.t.Fatalf("Report: %v", err)
	}
}

func (f *fixture) checkpoint(id store.RunID) string {
	f.t.Helper()
	text, err := f.store.Checkpoint(f.ctx, id)
	if err != nil {
		f.t.Fatalf("Checkpoint: %v", err)
	}
	return string(text)
}

func zombieReports(t *testing.T, f *fixture) {
	z := f.zombie()
	f.mustReport(z.held, z.run, store.Report{Fraction: fractionOf(0.5), Note: noteOf("half"), Checkpoint: []byte(`1`)})
	before := f.record(z.run)
	for _, report := range []store.Report{
		{Fraction: fractionOf(0.9), Note: noteOf("stale")}, {Checkpoint: []byte(`2`)}, {},
	} {
		if err := f.report(z.stale, z.run, report); !errors.Is(err, lease.ErrLost) {
			t.Errorf("Report of a zombie: %v, want lease.ErrLost", err)
		}
	}
	after := f.record(z.run)
	if *after.Progress != *before.Progress || string(after.Checkpoint) != `1` {
		t.Errorf("a zombie changed %+v to %+v, checkpoint %s", before.Progress, after.Progress, after.Checkpoint)
	}
}

func reportNotRunning(t *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	worker := newWorker("w1")
	refused := func(when string, claim lease.ClaimID, id store.RunID) {
		t.Helper()
		if err := f.report(claim, id, store.Report{Checkpoint: []byte(`1`)}); !errors.Is(err, lease.ErrLost) {
			t.Errorf("Report of a run that %s: %v, want lease.ErrLost", when, err)
		}
	}
	refused("is pending", lease.NewClaimID(), run.ID)
	refused("is pending, by no claim", lease.ClaimID{}, run.ID)
	refused("never was", lease.NewClaimID(), store.NewRunID())
	claim, claimed := f.claimOne(worker)
	refused("is another's", lease.NewClaimID(), run.ID)
	f.settle(one(claim, worker, claimed.ID, success()))
	refused("has succeeded", claim, run.ID)
	if got := f.checkpoint(run.ID); got != "" {
		t.Errorf("a checkpoint was stored all the same: %s", got)
	}
}

func reportParts(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, run := f.claimOne(worker)
	if record := f.record(run.ID); record.Progress != nil || record.Checkpoint != nil {
		t.Errorf("before any report: %+v, %s", record.Progress, record.Checkpoint)
	}
	f.mustReport(claim, run.ID, store.Report{Checkpoint: []byte(`{"at":1}`)})
	if record := f.record(run.ID); record.Progress != nil || string(record.Checkpoint) != `{"at":1}` {
		t.Errorf("after a checkpoint: %+v, %s", record.Progress, record.Checkpoint)
	}
	f.mustReport(claim, run.ID, store.Report{Fraction: fractionOf(0.1234), Note: noteOf("some \"text\" — 😀")})
	f.mustReport(claim, run.ID, store.Report{Checkpoint: []byte(`{"at":2}`)})
	record := f.record(run.ID)
	if p := record.Progress; p == nil || p.Fraction != 0.1234 || p.Note != "some \"text\" — 😀" || p.At.IsZero() || string(record.Checkpoint) != `{"at":2}` {
		t.Errorf("after all: %+v, %s", p, record.Checkpoint)
	}
	f.mustReport(claim, run.ID, store.Report{Fraction: fractionOf(0), Note: noteOf("")})
	page, err := f.store.Runs(f.ctx, store.Filter{})
	if err != nil || len(page.Runs) != 1 {
		t.Fatalf("Runs: %d runs, %v", len(page.Runs), err)
	}
	if p := page.Runs[0].Progress; p == nil || p.Fraction != 0 || p.Note != "" || page.Runs[0].Checkpoint != nil {
		t.Errorf("in a list: %+v, %s; want the progress and no checkpoint", p, page.Runs[0].Checkpoint)
	}
}

func reportNote(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	claim, run := f.claimOne(newWorker("w1"))
	f.mustReport(claim, run.ID, store.Report{Note: noteOf("begun")})
	if p := f.record(run.ID).Progress; p == nil || p.Fraction != 0 || p.Note != "begun" || p.At.IsZero() {
		t.Errorf("after a note: %+v", p)
	}
	f.mustReport(claim, run.ID, store.Report{Fraction: fractionOf(0.5)})
	if p := f.record(run.ID).Progress; p == nil || p.Fraction != 0.5 || p.Note != "begun" {
		t.Errorf("after a fraction: %+v", p)
	}
}

func checkpointSurvives(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, run := f.claimOne(worker)
	f.mustReport(claim, run.ID, store.Report{Fraction: fractionOf(0.25), Note: noteOf("a quarter"), Checkpoint: []byte(`7`)})
	f.advance(31 * time.Second)
	f.reclaim()
	if got := f.checkpoint(run.ID); got != `7` {
		t.Errorf("after a crash the checkpoint is %q", got)
	}
	claim, run = f.claimOne(worker)
	f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.HandedBack}))
	claim, run = f.claimOne(worker)
	f.settle(one(claim, worker, run.ID, success()))
	record := f.record(run.ID)
	if string(record.Checkpoint) != `7` || record.Progress == nil || record.Progress.Note != "a quarter" {
		t.Errorf("after the end: %s, %+v", record.Checkpoint, record.Progress)
	}
}

func checkpointBytes(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	claim, run := f.claimOne(newWorker("w1"))
	large := `"` + strings.Repeat("x", store.MaxArgsSize-2) + `"`
	for _, text := range []string{`{"b":1,"a":  2, "a":3}`, `"😀"`, `null`, large} {
		f.mustReport(claim, run.ID, store.Report{Checkpoint: []byte(text)})
		if got := f.checkpoint(run.ID); got != text {
			t.Errorf("checkpoint %.50s came back as %.50s", text, got)
		}
	}
}

func checkpointNone(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	claim, run := f.claimOne(newWorker("w1"))
	f.mustReport(claim, run.ID, store.Report{Fraction: fractionOf(1), Note: noteOf("")})
	for _, id := range []store.RunID{run.ID, store.NewRunID()} {
		if text, err := f.store.Checkpoint(f.ctx, id); text != nil || err != nil {
			t.Errorf("Checkpoint: %s, %v; want none", text, err)
		}
	}
}

// reportRaces lets the old claim report while its run is reclaimed and claimed
// again: what the new claim has once read does not change any more.
func reportRaces(t *testing.T, f *fixture) {
	for round := range 10 {
		f.enqueue(newRun())
		worker := newWorker("w1")
		stale, run := f.claimOne(worker)
		f.advance(31 * time.Second)
		var kept string
		var held lease.ClaimID
		f.together(func(ctx context.Context) error {
			for n := 0; ; n++ {
				err := f.store.Report(ctx, store.Holder{Run: run.ID, Claim: stale}, store.Report{Checkpoint: fmt.Appendf(nil, "%d", n)})
				if errors.Is(err, lease.ErrLost) {
					return nil
				}
				if err != nil && !errors.Is(err, store.ErrConflict) { // the reclaim of the run may be delayed by a busy machine
					return err
				}
			}
		}, func(context.Context) error {
			for held == (lease.ClaimID{}) {
				f.reclaim()
				if claim, claimed := f.claim(worker, 1); len(claimed) == 1 {
					held = claim
				}
			}
			kept = f.checkpoint(run.ID)
			return nil
		})
		if t.Failed() {
			return
		}
		if got := f.checkpoint(run.ID); got != kept {
			t.Errorf("round %d: the checkpoint was %q under the new claim and is %q", round, kept, got)
		}
		f.settle(one(held, worker, run.ID, success()))
	}
}

func logOfSuccess(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	run := func(outcome store.Outcome) store.Record {
		f.enqueue(newRun())
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, outcome))
		return f.record(claimed.ID)
	}
	for _, result := range [][]byte{nil, []byte(`1`)} {
		for _, lines := range []string{"", "one\ntwo"} {
			record := run(store.Outcome{Kind: store.Success, Result: result, Log: lines})
			if len(record.Attempts) != 1 || record.State != store.Succeeded || string(record.Result) != string(result) || record.Error != nil {
				t.Fatalf("result %s, log %q: %+v", result, lines, record)
			}
			a := record.Attempts[0]
			if text(a.Log) != lines || a.Outcome != store.Success || a.Number != 1 || a.Worker != "w1" || a.Fence != record.Fence || a.Error != nil ||
				a.StartedAt.IsZero() || a.EndedAt.Before(a.StartedAt) {
				t.Errorf("result %s, log %q: attempt %+v", result, lines, a)
			}
		}
	}
}

func logOfEnds(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	for _, kind := range []store.OutcomeKind{store.Failure, store.Death, store.Cancellation} {
		f.enqueue(newRun())
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: kind, After: time.Hour, Error: "why", Log: `level=INFO msg="a \"b\""`}))
		attempts := f.record(claimed.ID).Attempts
		if len(attempts) != 1 || text(attempts[0].Log) != `level=INFO msg="a \"b\""` || text(attempts[0].Error) != "why" {
			t.Errorf("%v: %+v", kind, attempts)
		}
	}
}

func logOfPutBack(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRun())
	for _, kind := range []store.OutcomeKind{store.HandedBack, store.Snoozed} {
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: kind, After: time.Hour, Log: "lines"}))
		if attempts := f.record(claimed.ID).Attempts; len(attempts) != 0 {
			t.Errorf("%v: %+v", kind, attempts)
		}
	}
}

func listChosen(t *testing.T, f *fixture) {
	runs := newRuns(10)
	runs[3].Queue = "other"
	f.enqueue(runs...)
	list := func(filter store.Filter) []store.RunID {
		t.Helper()
		page, err := f.store.Runs(f.ctx, filter)
		if err != nil {
			t.Fatalf("Runs: %v", err)
		}
		var ids []store.RunID
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].ID)
		}
		return ids
	}
	some := []store.RunID{runs[1].ID, store.NewRunID(), runs[3].ID, runs[7].ID, runs[1].ID}
	if ids := list(store.Filter{IDs: some}); len(ids) != 3 || ids[0] != runs[7].ID || ids[1] != runs[3].ID || ids[2] != runs[1].ID {
		t.Errorf("listed %v of %v, want three, newest first", ids, some)
	}
	if counts, err := f.store.CountMatching(f.ctx, store.Filter{IDs: some}); err != nil || counts[store.Pending].N != 3 {
		t.Errorf("counted %v, %v of %v, want three", counts, err, some)
	}
	if ids := list(store.Filter{IDs: some, Queues: []string{"other"}}); len(ids) != 1 || ids[0] != runs[3].ID {
		t.Errorf("of queue other: %v", ids)
	}
	if ids := list(store.Filter{IDs: some, Limit: 1, Before: runs[3].ID}); len(ids) != 1 || ids[0] != runs[1].ID {
		t.Errorf("before %s: %v", runs[3].ID, ids)
	}
	if ids := list(store.Filter{IDs: some, States: []store.State{store.Dead}}); len(ids) != 0 {
		t.Errorf("dead: %v", ids)
	}
	for what, filter := range map[string]store.Filter{
		"201 ids": {IDs: make([]store.RunID, 201)}, "an empty choice of ids": {IDs: []store.RunID{}}, "an unknown state": {States: []store.State{99}},
		"a NUL": {Jobs: []string{"mail", "a\x00b"}}, "a queue that is no text": {Queues: []string{"\xff"}}, "a tag that is no text": {Tag: "\xc3("},
	} {
		if _, err := f.store.Runs(f.ctx, filter); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	for _, filter := range []store.ChangeFilter{{Kind: "a\x00"}, {Subject: "\xff"}} {
		if _, err := f.store.Changes(f.ctx, filter); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", filter, err)
		}
	}
}
