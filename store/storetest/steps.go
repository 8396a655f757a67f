package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func stepTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a step comes back as it was recorded":                     stepComesBack,
		"the first result of a name counts":                        stepFirstCounts,
		"a result replaces what was recorded of tries":             stepTries,
		"zombie records no step, begins no wait, gives nothing up": stepZombie,
		"a step that is lost stops no other":                       stepTogether,
		"a step that no engine could store is refused":             stepInvalid,
		"a wait keeps the instant of its first recording":          waitKeepsInstant,
		"a wait begins a new stretch of the run's life":            waitStretch,
		"a wait without an end has none":                           waitForever,
		"steps go with their run":                                  stepsGo,
		"forgotten steps are recorded again":                       stepsForgotten,
		"a retry forgets failures on which nothing was built":      retryForgets,
		"a retry keeps failures on which something was built":      retryKeeps,
		"a run that has begun is not given other args":             begunNotReplaced,
		"steps of one name race to one value":                      stepRace,
	}
}

// newStep makes a result of a step.
func newStep(holder store.Holder, name, value string) store.NewStep {
	return store.NewStep{Holder: holder, Name: name, Kind: store.StepDone, Value: []byte(value)}
}

func (f *fixture) recordSteps(steps ...store.NewStep) []store.StepVerdict {
	f.t.Helper()
	verdicts, err := f.store.RecordSteps(f.ctx, steps)
	if err != nil || len(verdicts) != len(steps) {
		f.t.Fatalf("RecordSteps answered %v, %v", verdicts, err)
	}
	return verdicts
}

func (f *fixture) mustRecord(steps ...store.NewStep) {
	f.t.Helper()
	for i, verdict := range f.recordSteps(steps...) {
		if verdict != store.StepStored {
			f.t.Fatalf("step %q: verdict %d, want it stored", steps[i].Name, verdict)
		}
	}
}

func (f *fixture) steps(id store.RunID) store.RunSteps {
	f.t.Helper()
	found, err := store.StepsOf(f.ctx, f.store, id)
	if err != nil {
		f.t.Fatalf("Steps: %v", err)
	}
	return found
}

// step returns the recorded step of a name, which has to be there.
func (f *fixture) step(id store.RunID, name string) store.StepRecord {
	f.t.Helper()
	for _, step := range f.steps(id).Steps {
		if step.Name == name {
			return step
		}
	}
	f.t.Fatalf("run %s has no step %q", id, name)
	return store.StepRecord{}
}

// names lists the recorded steps.
func (f *fixture) names(id store.RunID) string {
	f.t.Helper()
	var names []string
	for _, step := range f.steps(id).Steps {
		names = append(names, step.Name)
	}
	return strings.Join(names, " ")
}

func stepComesBack(t *testing.T, f *fixture) {
	_, holder := f.held()
	if found := f.steps(holder.Run); len(found.Steps)+len(found.Inputs) != 0 || found.Now.IsZero() {
		t.Fatalf("a new run has recorded %+v", found)
	}
	expires := f.now().Add(time.Hour).Truncate(time.Second)
	expiring := newRun(func(r *store.NewRun) { r.Queue, r.ExpiresAt = "other", expires })
	f.enqueue(expiring)
	if got := f.steps(expiring.ID).ExpiresAt; !got.Equal(expires) || !f.steps(holder.Run).ExpiresAt.IsZero() {
		t.Errorf("the run expires at %v, want %v", got, expires)
	}
	odd := strings.Repeat("ä", 64)
	done := newStep(holder, odd, "{\"é\":  \"\\\"\\\\, {NULL}\" }")
	done.Took = 1500 * time.Microsecond
	failed := store.NewStep{Holder: holder, Name: "'; drop table", Kind: store.StepFailed, Tries: 3, Error: "no \"rooms\"\n", Code: "ROOMS"}
	empty := newStep(holder, "no value", "")
	empty.Value = nil
	f.mustRecord(done)
	f.mustRecord(failed, empty)
	got := f.step(holder.Run, odd)
	if string(got.Value) != string(done.Value) || got.Kind != store.StepDone || got.Took != done.Took || got.Tries != 0 || got.At.IsZero() || !got.Until.IsZero() {
		t.Errorf("stored %+v, want %+v", got, done)
	}
	got = f.step(holder.Run, failed.Name)
	if got.Kind != store.StepFailed || got.Tries != 3 || got.Error != failed.Error || got.Code != "ROOMS" || got.Value != nil {
		t.Errorf("stored %+v, want %+v", got, failed)
	}
	if got = f.step(holder.Run, "no value"); got.Value != nil || got.Kind != store.StepDone {
		t.Errorf("stored %+v, want a result without a value", got)
	}
}

func stepFirstCounts(t *testing.T, f *fixture) {
	_, holder := f.held()
	f.mustRecord(newStep(holder, "charge", `1`))
	for _, other := range []store.NewStep{newStep(holder, "charge", `2`), newStep(holder, "charge", `1`),
		{Holder: holder, Name: "charge", Kind: store.StepFailed, Error: "x"}, {Holder: holder, Name: "charge", Kind: store.StepTried, Tries: 1, Error: "x"}} {
		if verdicts := f.recordSteps(other); verdicts[0] != store.StepKnown {
			t.Errorf("verdict %d on %+v, want that another is known", verdicts[0], other)
		}
	}
	if got := f.step(holder.Run, "charge"); string(got.Value) != `1` || got.Kind != store.StepDone {
		t.Errorf("the step is %+v", got)
	}
}

func stepTries(t *testing.T, f *fixture) {
	_, holder := f.held()
	try := store.NewStep{Holder: holder, Name: "charge", Kind: store.StepTried, Tries: 2, Error: "second"}
	f.mustRecord(try)
	f.mustRecord(try)
	try.Tries = 1
	f.mustRecord(try)
	if got := f.step(holder.Run, "charge"); got.Tries != 2 || got.Kind != store.StepTried {
		t.Errorf("the step is %+v, want two tries", got)
	}
	f.mustRecord(newStep(holder, "charge", `7`))
	if got := f.step(holder.Run, "charge"); got.Kind != store.StepDone || string(got.Value) != `7` || got.Error != "" {
		t.Errorf("the step is %+v, want its result", got)
	}
}

func stepZombie(t *testing.T, f *fixture) {
	z := f.zombie()
	stale, held := store.Holder{Run: z.run, Claim: z.stale}, store.Holder{Run: z.run, Claim: z.held}
	refused := func(who string, holder store.Holder) {
		t.Helper()
		if verdicts := f.recordSteps(newStep(holder, "charge", `1`)); verdicts[0] != store.StepLost {
			t.Errorf("%s records: verdict %d, want that it is lost", who, verdicts[0])
		}
		_, err := f.store.BeginWait(f.ctx, store.NewWait{Holder: holder, Name: "nap", Kind: store.StepSleep, For: time.Hour})
		lost(t, who+": BeginWait", err)
		_, err = f.store.GiveUp(f.ctx, holder, "approved")
		lost(t, who+": GiveUp", err)
	}
	refused("a zombie", stale)
	f.mustRecord(newStep(held, "charge", `2`))
	refused("a zombie, of a step that is stored", stale)
	f.settle(one(z.held, z.worker, z.run, success()))
	refused("a claim whose run has ended", held)
	if found := f.steps(z.run); len(found.Steps) != 1 || string(found.Steps[0].Value) != `2` || len(found.Inputs) != 0 {
		t.Errorf("recorded is %+v", found)
	}
	if record := f.record(z.run); record.State != store.Succeeded {
		t.Errorf("the run is %v", record.State)
	}
}

func stepTogether(t *testing.T, f *fixture) {
	z := f.zombie()
	_, other := f.held()
	verdicts := f.recordSteps(
		newStep(store.Holder{Run: z.run, Claim: z.stale}, "a", `1`), newStep(other, "a", `2`),
		newStep(store.Holder{Run: z.run, Claim: z.held}, "b", `3`), newStep(store.Holder{Run: store.NewRunID(), Claim: z.held}, "a", `4`))
	want := []store.StepVerdict{store.StepLost, store.StepStored, store.StepStored, store.StepLost}
	if fmt.Sprint(verdicts) != fmt.Sprint(want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
	if f.names(z.run) != "b" || f.names(other.Run) != "a" {
		t.Errorf("recorded are %q and %q", f.names(z.run), f.names(other.Run))
	}
}

func stepInvalid(t *testing.T, f *fixture) {
	_, holder := f.held()
	for what, step := range map[string]store.NewStep{
		"no name": newStep(holder, "", `1`), "a long name": newStep(holder, strings.Repeat("x", store.MaxStepName+1), `1`),
		"a control character": newStep(holder, "a\nb", `1`), "no JSON": newStep(holder, "a", `{`),
		"a large value": newStep(holder, "a", `"`+strings.Repeat("x", store.MaxStepSize)+`"`),
		"a NUL":         {Holder: holder, Name: "a", Kind: store.StepFailed, Error: "\x00"}, "a wait": {Holder: holder, Name: "a", Kind: store.StepSleep},
	} {
		if _, err := f.store.RecordSteps(f.ctx, []store.NewStep{newStep(holder, "good", `1`), step}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	for what, wait := range map[string]store.NewWait{
		"a result": {Holder: holder, Name: "a", Kind: store.StepDone}, "no name": {Holder: holder, Kind: store.StepSleep},
		"the past of the calendar": {Holder: holder, Name: "a", Kind: store.StepSleep, Until: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)},
		"a long time":              {Holder: holder, Name: "a", Kind: store.StepSleep, For: store.MaxDelay + 1},
	} {
		if _, err := f.store.BeginWait(f.ctx, wait); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if got := f.names(holder.Run); got != "" {
		t.Errorf("stored is %q", got)
	}
}

func (f *fixture) beginWait(wait store.NewWait) store.RunSteps {
	f.t.Helper()
	found, err := f.store.BeginWait(f.ctx, wait)
	if err != nil || len(found.Steps) != 1 || found.Now.IsZero() {
		f.t.Fatalf("BeginWait answered %+v, %v", found, err)
	}
	return found
}

func waitKeepsInstant(t *testing.T, f *fixture) {
	worker, holder := f.held()
	first := f.beginWait(store.NewWait{Holder: holder, Name: "nap", Kind: store.StepSleep, For: time.Hour})
	until := first.Steps[0].Until
	if d := until.Sub(first.Now); d < 59*time.Minute || d > time.Hour {
		t.Fatalf("an hour ends in %v", d)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.HandedBack}))
	holder.Claim, _ = f.claimOne(worker)
	again := f.beginWait(store.NewWait{Holder: holder, Name: "nap", Kind: store.StepSleep, For: 5 * time.Hour})
	if !again.Steps[0].Until.Equal(until) {
		t.Errorf("the wait ends at %v, and first at %v", again.Steps[0].Until, until)
	}
	instant := time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC)
	if got := f.beginWait(store.NewWait{Holder: holder, Name: "century", Kind: store.StepSleep, Until: instant}).Steps[0].Until; !got.Equal(instant) {
		t.Errorf("the wait ends at %v, want %v", got, instant)
	}
	f.mustRecord(newStep(holder, "charge", `1`))
	if got := f.beginWait(store.NewWait{Holder: holder, Name: "charge", Kind: store.StepSleep, For: time.Hour}).Steps[0]; got.Kind != store.StepDone {
		t.Errorf("a wait took the name of a result: %+v", got)
	}
}

func waitStretch(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.MaxAttempts = 3 })
	f.isolate(run)
	alone := f.claimLine(run.ID, func(r *store.ClaimRequest) { r.Alone = true })
	wait := store.NewWait{Holder: store.Holder{Run: run.ID, Claim: alone.Claim}, Name: "nap", Kind: store.StepSleep}
	f.beginWait(wait)
	f.settle(one(alone.Claim, alone.Worker, run.ID, store.Outcome{Kind: store.Snoozed}))
	record := f.record(run.ID)
	if record.CrashCount != 0 || record.Isolated || record.Attempt != 0 || record.State != store.Pending {
		t.Fatalf("after a wait the run is %+v", record)
	}
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	if claimed.Attempt != 1 || claimed.Lane <= 0 || claimed.CrashCount != 0 {
		t.Errorf("claimed %+v, want the first attempt of a new stretch", claimed)
	}
	f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: store.Failure, Error: "x"}))
	wait.Claim, claimed = f.claimOne(worker)
	f.beginWait(wait)
	f.settle(one(wait.Claim, worker, claimed.ID, store.Outcome{Kind: store.Failure, Error: "x"}))
	if record := f.record(claimed.ID); record.Attempt != 2 {
		t.Errorf("a wait that was recorded before began another stretch: %+v", record)
	}
}

func waitForever(t *testing.T, f *fixture) {
	_, holder := f.held()
	found := f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput})
	if step := found.Steps[0]; !step.Until.IsZero() || step.Kind != store.StepInput || len(found.Inputs) != 0 {
		t.Errorf("recorded %+v", found)
	}
}

func stepsGo(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.mustRecord(newStep(holder, "a", `1`))
	f.send(store.NewInput{Run: holder.Run, Name: "approved", Value: []byte(`1`)})
	f.settle(one(holder.Claim, worker, holder.Run, success()))
	if f.names(holder.Run) != "a" {
		t.Fatal("the step of a run that has succeeded is gone")
	}
	f.operate(store.DeleteRuns, holder.Run)
	if found := f.steps(holder.Run); len(found.Steps)+len(found.Inputs) != 0 {
		t.Errorf("a deleted run has recorded %+v", found)
	}
	worker, holder = f.held()
	f.mustRecord(newStep(holder, "b", `1`))
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	f.operate(store.DeleteRuns, holder.Run)
	if f.names(holder.Run) != "" {
		t.Error("the step of a pending run outlives it")
	}
}

func stepsForgotten(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.mustRecord(newStep(holder, "a", `1`), newStep(holder, "b", `2`))
	if _, err := f.store.ForgetSteps(f.ctx, holder.Run, []string{"a"}, "eva"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("ForgetSteps of a run that executes: %v, want ErrConflict", err)
	}
	if _, err := f.store.ForgetSteps(f.ctx, store.NewRunID(), []string{"a"}, "eva"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("ForgetSteps of no run: %v, want ErrNotFound", err)
	}
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "x"}))
	for _, want := range []int{1, 0} {
		if n, err := f.store.ForgetSteps(f.ctx, holder.Run, []string{"a", "c"}, "eva"); err != nil || n != want {
			t.Errorf("forgotten %d, %v, want %d", n, err, want)
		}
	}
	if got := f.names(holder.Run); got != "b" {
		t.Errorf("left is %q", got)
	}
	page, err := f.store.Changes(f.ctx, store.ChangeFilter{Kind: "run", Action: store.ForgetsSteps})
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Subject != holder.Run.String() || page.Changes[0].Actor != "eva" {
		t.Errorf("the audit log has %+v, %v", page, err)
	}
}

// dead lets a run die and retries it.
func (f *fixture) deadAndRetried(worker store.WorkerID, holder store.Holder) {
	f.t.Helper()
	f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Death, Error: "x"}))
	f.operate(store.RetryRuns, holder.Run)
}

func retryForgets(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.mustRecord(newStep(holder, "flight", `1`))
	f.mustRecord(store.NewStep{Holder: holder, Name: "hotel", Kind: store.StepFailed, Tries: 8, Error: "no rooms"})
	f.beginWait(store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput, For: 0})
	if input, err := f.store.GiveUp(f.ctx, holder, "approved"); err != nil || !input.GaveUp {
		t.Fatalf("GiveUp answered %+v, %v", input, err)
	}
	f.deadAndRetried(worker, holder)
	if found := f.steps(holder.Run); len(found.Steps) != 1 || found.Steps[0].Name != "flight" || len(found.Inputs) != 0 {
		t.Errorf("after the retry the run has %+v", found)
	}
}

func retryKeeps(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.mustRecord(store.NewStep{Holder: holder, Name: "hotel", Kind: store.StepFailed, Tries: 8, Error: "no rooms"})
	f.advance(time.Second)
	f.mustRecord(newStep(holder, "cancel flight", `1`))
	f.deadAndRetried(worker, holder)
	if got := f.names(holder.Run); got != "hotel cancel flight" {
		t.Errorf("after the retry the run has %q", got)
	}
}

func begunNotReplaced(t *testing.T, f *fixture) {
	key := func(r *store.NewRun) {
		r.Key = store.Key{Text: "user 7", Policy: store.KeyReplace}
	}
	first, second := newRun(key), newRun(key)
	f.enqueue(first)
	worker := newWorker("w1")
	claim, _ := f.claimOne(worker)
	f.mustRecord(newStep(store.Holder{Run: first.ID, Claim: claim}, "a", `1`))
	f.settle(one(claim, worker, first.ID, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	receipts, err := f.store.Enqueue(f.ctx, second)
	if err != nil || receipts[0].Existing || receipts[0].ID != second.ID {
		t.Fatalf("Enqueue answered %+v, %v; want a run of its own", receipts, err)
	}
	if record := f.record(first.ID); string(record.Args) != string(first.Args) || record.State != store.Pending || f.names(first.ID) != "a" {
		t.Errorf("the run that has begun is %+v", record)
	}
}

func stepRace(t *testing.T, f *fixture) {
	_, holder := f.held()
	var racing sync.WaitGroup
	var stored atomic.Int64
	for i := range 8 {
		racing.Go(func() {
			verdicts, err := f.store.RecordSteps(f.ctx, []store.NewStep{newStep(holder, "charge", fmt.Sprint(i))})
			switch {
			case err != nil:
				t.Errorf("RecordSteps: %v", err)
			case verdicts[0] == store.StepStored:
				stored.Add(1)
			case verdicts[0] != store.StepKnown && verdicts[0] != store.StepLocked:
				t.Errorf("verdict %d", verdicts[0])
			}
		})
	}
	if racing.Wait(); stored.Load() != 1 {
		t.Errorf("%d values of one step were stored", stored.Load())
	}
}
