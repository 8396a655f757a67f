package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func inputTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"an input makes the run due that waits for it":          inputReleases,
		"a limited run is released into its line":               inputReleasesLimited,
		"an input that comes before the wait is there later":    inputEarly,
		"an input of another name releases nothing":             inputOther,
		"the first value of a name counts":                      inputFirstCounts,
		"of input and deadline one counts":                      inputOrDeadline,
		"an input for the holder of a key":                      inputByKey,
		"an input for a run that is no more is refused":         inputRefused,
		"an input comes while its run is executing":             inputWhileExecuting,
		"an input that no engine could store is refused":        inputInvalid,
		"inputs and deadlines race to one outcome":              inputRace,
		"every run that waits is released when its input comes": inputEveryOne,
		"an input that a person has sent is in the audit log":   inputAudited,
		"a claim sends an input while it has its run":           inputUnder,
		"a survey counts inputs that no worker has looked at":   inputNoticed,
	}
}

func (f *fixture) send(input store.NewInput) store.SendReceipt {
	f.t.Helper()
	receipt, err := f.store.Send(f.ctx, input)
	if err != nil {
		f.t.Fatalf("Send: %v", err)
	}
	return receipt
}

// approval makes an input.
func approval(run store.RunID, value string) store.NewInput {
	return store.NewInput{Run: run, Name: "approved", Value: []byte(value)}
}

// park records a wait for an input and puts the run back.
func (f *fixture) park(worker store.WorkerID, holder store.Holder, name string) {
	f.t.Helper()
	f.beginWait(store.NewWait{Holder: holder, Name: name, Kind: store.StepInput, For: time.Hour})
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
}

func (f *fixture) release(looks ...store.Look) store.ReleaseResult {
	f.t.Helper()
	result, err := f.store.Release(f.ctx, store.ReleaseRequest{Look: looks, Limit: 100})
	if err != nil {
		f.t.Fatalf("Release: %v", err)
	}
	return result
}

// nothingDue fails if a run can be claimed.
func (f *fixture) nothingDue(when string) {
	f.t.Helper()
	if _, claimed := f.claim(newWorker("other"), 10); len(claimed) != 0 {
		f.t.Fatalf("%s: claimed %+v", when, claimed)
	}
}

func inputReleases(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.park(worker, holder, "approved")
	f.nothingDue("nothing was sent")
	if receipt := f.send(approval(holder.Run, `{"yes": true}`)); receipt.Existing || receipt.Run != holder.Run {
		t.Errorf("receipt %+v", receipt)
	}
	_, claimed := f.claimOne(worker)
	if claimed.ID != holder.Run || claimed.Attempt != 1 {
		t.Errorf("claimed %+v", claimed)
	}
	if found := f.steps(holder.Run); len(found.Inputs) != 1 || string(found.Inputs[0].Value) != `{"yes": true}` || found.Inputs[0].Name != "approved" || found.Inputs[0].GaveUp {
		t.Errorf("the run has %+v", found.Inputs)
	}
	if result := f.release(); result.Taken != 0 || result.Next >= 0 {
		t.Errorf("notices are left: %+v", result)
	}
}

func inputReleasesLimited(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "customer", Kind: store.LimitSemaphore, Max: 1})
	run := newRun(func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "customer", Key: "7"}} })
	f.enqueue(run)
	first := f.wantAdmitted("when it is enqueued", run)[0]
	holder := store.Holder{Run: run.ID, Claim: first.claim}
	f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: time.Hour})
	f.settle(first.settlement(store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	f.wantAdmitted("before the input")
	f.send(approval(run.ID, `1`))
	f.wantAdmitted("after the input", run)
}

func inputEarly(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.send(approval(holder.Run, `1`))
	found := f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: time.Hour})
	if len(found.Inputs) != 1 || string(found.Inputs[0].Value) != `1` {
		t.Errorf("the wait finds %+v", found.Inputs)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	if result := f.release(store.Look{Run: holder.Run, Name: "approved"}); result.Released != 1 {
		t.Errorf("a run that waits for what is there is not released: %+v", result)
	}
	f.claimOne(worker)
}

func inputOther(_ *testing.T, f *fixture) {
	worker, holder := f.held()
	f.park(worker, holder, "approved")
	f.send(store.NewInput{Run: holder.Run, Name: "shipped", Value: []byte(`1`)})
	f.nothingDue("another name was sent")
	f.release(store.Look{Run: holder.Run, Name: "shipped"}, store.Look{Run: holder.Run, Name: "approved"}, store.Look{Run: store.NewRunID(), Name: "approved"})
	f.nothingDue("another name was sent, and looked at")
}

func inputFirstCounts(t *testing.T, f *fixture) {
	_, holder := f.held()
	first := approval(holder.Run, `1`)
	first.By = "eva"
	f.send(first)
	if receipt := f.send(approval(holder.Run, `1`)); !receipt.Existing {
		t.Errorf("the same value again: %+v", receipt)
	}
	if _, err := f.store.Send(f.ctx, approval(holder.Run, `2`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("another value: %v, want ErrConflict", err)
	}
	if inputs := f.steps(holder.Run).Inputs; len(inputs) != 1 || string(inputs[0].Value) != `1` || inputs[0].By != "eva" {
		t.Errorf("the run has %+v", inputs)
	}
	sealed := approval(holder.Run, `"sealed"`)
	sealed.Name, sealed.Digest = "sealed", store.DigestOf("sealed", []byte(`7`))
	f.send(sealed)
	if sealed.Value = []byte(`"sealed otherwise"`); !f.send(sealed).Existing {
		t.Error("a value that was sealed in another way is no repeat")
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
		t.Fatalf("an input that no worker has looked at: %+v", survey)
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

func inputOrDeadline(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: time.Second})
	for range 2 {
		if input, err := f.store.GiveUp(f.ctx, holder, "approved"); err != nil || !input.GaveUp || input.Value != nil {
			t.Fatalf("GiveUp answered %+v, %v", input, err)
		}
	}
	if _, err := f.store.Send(f.ctx, approval(holder.Run, `1`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an input after the deadline: %v, want ErrConflict", err)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	f.release(store.Look{Run: holder.Run, Name: "approved"})
	f.nothingDue("the run has given up")
	_, other := f.held()
	f.send(approval(other.Run, `1`))
	if input, err := f.store.GiveUp(f.ctx, other, "approved"); err != nil || input.GaveUp || string(input.Value) != `1` {
		t.Errorf("GiveUp of an input that is there: %+v, %v", input, err)
	}
}

func inputByKey(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.Key = store.Key{Text: "order 7"} })
	f.enqueue(run)
	input := store.NewInput{Job: run.Job, Key: "order 7", Name: "approved", Value: []byte(`1`)}
	if receipt := f.send(input); receipt.Run != run.ID {
		t.Errorf("receipt %+v, want run %s", receipt, run.ID)
	}
	input.Key = "order 8"
	if _, err := f.store.Send(f.ctx, input); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key that no run holds: %v, want ErrNotFound", err)
	}
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.settle(one(claim, worker, run.ID, success()))
	input.Key, input.Name = "order 7", "shipped"
	if _, err := f.store.Send(f.ctx, input); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key whose run has ended: %v, want ErrNotFound", err)
	}
}

func inputRefused(t *testing.T, f *fixture) {
	if _, err := f.store.Send(f.ctx, approval(store.NewRunID(), `1`)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an input for no run: %v, want ErrNotFound", err)
	}
	worker, holder := f.held()
	f.send(approval(holder.Run, `1`))
	f.settle(one(holder.Claim, worker, holder.Run, success()))
	if _, err := f.store.Send(f.ctx, store.NewInput{Run: holder.Run, Name: "late", Value: []byte(`1`)}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an input for a run that has ended: %v, want ErrConflict", err)
	}
	if !f.send(approval(holder.Run, `1`)).Existing {
		t.Error("a repeat after the run has ended is not recognised")
	}
}

func inputWhileExecuting(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: time.Hour})
	f.send(approval(holder.Run, `1`))
	for range 2 {
		if result := f.release(); result.Released != 0 || result.Next < 0 {
			t.Fatalf("while the run is executing: %+v, want that its notice is put back", result)
		}
		f.advance(time.Second)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	deadline := time.Now().Add(patience)
	for f.release().Released == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the notice that was put back does not release the run")
		}
		f.advance(10 * time.Millisecond)
	}
	f.claimOne(worker)
}

// inputBound fills a run with inputs. One that is sent while others are under way may find more room
// than there is, so the last ones come alone.
func inputBound(t *testing.T, f *fixture) {
	const senders, alone = 8, 8
	_, holder := f.held()
	page := func(i int) {
		input := store.NewInput{Run: holder.Run, Name: fmt.Sprint("page ", i), Value: []byte(`1`)}
		if receipt, err := f.store.Send(f.ctx, input); err != nil || receipt.Existing {
			t.Errorf("input %d: %+v, %v", i, receipt, err)
		}
	}
	var sending sync.WaitGroup
	for sender := range senders {
		sending.Go(func() {
			for i := sender; i < store.MaxInputs-alone; i += senders {
				page(i)
			}
		})
	}
	sending.Wait()
	for i := range alone {
		page(store.MaxInputs - alone + i)
	}
	if _, err := f.store.Send(f.ctx, approval(holder.Run, `1`)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("one input too many: %v, want ErrInvalid", err)
	}
}

func inputInvalid(t *testing.T, f *fixture) {
	_, holder := f.held()
	for what, input := range map[string]store.NewInput{
		"no run":  {Name: "a", Value: []byte(`1`)},
		"no name": {Run: holder.Run, Value: []byte(`1`)},
		"no JSON": {Run: holder.Run, Name: "a", Value: []byte(`{`)},
		"both":    {Run: holder.Run, Job: "mail", Key: "k", Name: "a", Value: []byte(`1`)},
		"no job":  {Key: "k", Name: "a", Value: []byte(`1`)},
	} {
		if _, err := f.store.Send(f.ctx, input); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

// inputRace has senders and the run itself race for one place. A sender that is answered that its value
// counts is right, and everybody sees the same.
func inputRace(t *testing.T, f *fixture) {
	for round := range 8 {
		_, holder := f.held()
		f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput})
		var racing sync.WaitGroup
		var accepted atomic.Int64
		for i := range 4 {
			racing.Go(func() {
				_, err := f.store.Send(f.ctx, approval(holder.Run, fmt.Sprint(i)))
				switch {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("Send: %v", err)
				}
			})
		}
		gaveUp := false
		racing.Go(func() {
			input, err := f.store.GiveUp(f.ctx, holder, "approved")
			if err != nil && !errors.Is(err, store.ErrConflict) {
				t.Errorf("GiveUp: %v", err)
			}
			gaveUp = err == nil && input.GaveUp
		})
		racing.Wait()
		inputs := f.steps(holder.Run).Inputs
		if len(inputs) != 1 || inputs[0].GaveUp != gaveUp || gaveUp == (accepted.Load() == 1) {
			t.Fatalf("round %d: %d accepted, given up: %v; stored is %+v", round, accepted.Load(), gaveUp, inputs)
		}
	}
}

// inputEveryOne sends inputs at the moment in which runs begin to wait for them.
func inputEveryOne(t *testing.T, f *fixture) {
	const runs = 20
	worker := newWorker("w1")
	f.enqueue(newRuns(runs)...)
	var racing sync.WaitGroup
	for range runs {
		claim, claimed := f.claimOne(worker)
		holder := store.Holder{Run: claimed.ID, Claim: claim}
		racing.Go(func() { f.send(approval(holder.Run, `1`)) })
		racing.Go(func() {
			f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: time.Hour})
			f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
		})
	}
	racing.Wait()
	released := 0
	for deadline := time.Now().Add(patience); released < runs; {
		f.release()
		f.advance(10 * time.Millisecond)
		_, claimed := f.claim(worker, runs)
		if released += len(claimed); time.Now().After(deadline) {
			t.Fatalf("%d of %d runs were released", released, runs)
		}
	}
	if result := f.release(); result.Taken != 0 || result.Next >= 0 {
		t.Errorf("notices are left: %+v", result)
	}
}
