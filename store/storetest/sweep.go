package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func sweepTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"ended runs are deleted when they are old enough and not before":  sweepByAge,
		"a run that has not ended is never deleted":                       sweepUnfinished,
		"a job's own retention counts for all that its runs end in":       sweepByJob,
		"a retention of zero or less keeps runs forever":                  sweepForever,
		"a run is deleted whatever time its id contains":                  sweepOddIDs,
		"a step is bounded and the next one continues":                    sweepInSteps,
		"a sweeper that is at it makes others busy, but not for long":     sweepBusy,
		"what was deleted may be enqueued again under its id":             sweepAndEnqueue,
		"a running run whose lease has gone is handed back":               sweepStranded,
		"a stranded run that must not be begun twice is dead":             sweepStrandedDead,
		"of a stranded run too the crash rule is stronger than a cancel":  crashRuleOfSweep,
		"a running run whose lease has expired is left to reclaim":        sweepExpired,
		"sweepers beside workers delete and hand back nothing that lives": sweepBesideWorkers,
		"many sweepers together delete each run once":                     sweepersRace,
	}
}

// sweeper makes requests as the workers do.
func sweeper() store.SweepRequest {
	return store.SweepRequest{By: uuid.New(), Retention: 24 * time.Hour, RetentionDead: 7 * 24 * time.Hour, Limit: 100}
}

// sweep makes steps until Done.
func (f *fixture) sweep(request store.SweepRequest) store.SweepResult {
	f.t.Helper()
	var all store.SweepResult
	for range 10_000 {
		swept, err := f.store.Sweep(f.ctx, request)
		if err != nil {
			f.t.Fatalf("Sweep: %v", err)
		}
		if swept.Busy {
			f.t.Fatal("Sweep is busy, though no other sweeper runs")
		}
		if swept.Deleted > request.Limit {
			f.t.Errorf("a step deleted %d runs, its limit is %d", swept.Deleted, request.Limit)
		}
		all.Deleted += swept.Deleted
		all.Returned = append(all.Returned, swept.Returned...)
		if swept.Done {
			return all
		}
	}
	f.t.Fatal("Sweep does not come to an end")
	return all
}

// wantSwept sweeps and says what should have been deleted.
func (f *fixture) wantSwept(request store.SweepRequest, deleted int) {
	f.t.Helper()
	if swept := f.sweep(request); swept.Deleted != deleted || len(swept.Returned) > 0 {
		f.t.Errorf("swept %+v, want %d deleted and none returned", swept, deleted)
	}
}

// end enqueues one run and ends it.
func (f *fixture) end(kind store.OutcomeKind, changes ...func(*store.NewRun)) store.RunID {
	f.t.Helper()
	run := newRun(changes...)
	f.enqueue(run)
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{run.Queue}, Jobs: []string{run.Job}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := f.request(newWorker("w1"), 1)
	request.Steps = []store.Step{{Lane: heads[0].Lane, Take: 1}}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1 || claimed[0].ID != run.ID {
		f.t.Fatalf("claimed %+v, %v, want run %s", claimed, err, run.ID)
	}
	f.settle(one(request.Claim, request.Worker, run.ID, store.Outcome{Kind: kind, Error: "so it is"}))
	return run.ID
}

func (f *fixture) wantGone(id store.RunID) {
	f.t.Helper()
	if record, err := f.store.Run(f.ctx, id); !errors.Is(err, store.ErrNotFound) {
		f.t.Errorf("run %s is still there: %+v, %v", id, record, err)
	}
}

func sweepByAge(_ *testing.T, f *fixture) {
	succeeded, cancelled, dead := f.end(store.Success), f.end(store.Cancellation), f.end(store.Death)
	f.wantSwept(sweeper(), 0)
	f.advance(23*time.Hour + 30*time.Minute)
	f.wantSwept(sweeper(), 0)
	f.advance(2 * time.Hour)
	f.wantSwept(sweeper(), 2)
	f.wantGone(succeeded)
	f.wantGone(cancelled)
	if record := f.record(dead); len(record.Attempts) != 1 {
		f.t.Errorf("the dead run has %d attempts, want 1", len(record.Attempts))
	}
	f.advance(5*24*time.Hour + 20*time.Hour)
	f.wantSwept(sweeper(), 0)
	f.advance(3 * time.Hour)
	f.wantSwept(sweeper(), 1)
	f.wantGone(dead)
	for state, n := range f.counts() {
		if n != 0 {
			f.t.Errorf("%d runs are %v, want none", n, state)
		}
	}
}

func sweepUnfinished(_ *testing.T, f *fixture) {
	f.enqueue(newRuns(3)...)
	claim, run := f.claimOne(newWorker("w1"))
	f.settle(one(claim, newWorker("w1"), run.ID, store.Outcome{Kind: store.Failure, Error: "again", After: time.Hour}))
	f.claimOne(newWorker("w2"))
	f.advance(365 * 24 * time.Hour)
	f.wantSwept(store.SweepRequest{By: uuid.New(), Retention: time.Second, RetentionDead: time.Second, Limit: 10}, 0)
	if counts := f.counts(); counts[store.Pending] != 2 || counts[store.Running] != 1 {
		f.t.Errorf("counts %v, want 2 pending and 1 running", counts)
	}
}

func sweepByJob(t *testing.T, f *fixture) {
	of := func(job string) func(*store.NewRun) { return func(r *store.NewRun) { r.Job = job } }
	var jobs []store.JobInfo
	for name, d := range map[string]time.Duration{"short": time.Hour, "long": 30 * 24 * time.Hour, "kept": store.KeepForever, "mail": 0} {
		jobs = append(jobs, store.JobInfo{Name: name, Queue: store.DefaultQueue, MaxAttempts: 3, Retention: store.Duration(d)})
	}
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Jobs: jobs}); err != nil {
		t.Fatal(err)
	}
	var short, long []store.RunID
	for _, kind := range []store.OutcomeKind{store.Success, store.Cancellation, store.Death} {
		short = append(short, f.end(kind, of("short")))
		long = append(long, f.end(kind, of("long")))
		f.end(kind, of("kept"))
	}
	f.advance(2 * time.Hour)
	f.wantSwept(sweeper(), 3)
	for _, id := range short {
		f.wantGone(id)
	}
	f.advance(29 * 24 * time.Hour)
	f.wantSwept(sweeper(), 0)
	f.advance(2 * 24 * time.Hour)
	f.wantSwept(sweeper(), 3)
	for _, id := range long {
		f.wantGone(id)
	}
	f.advance(10 * 365 * 24 * time.Hour)
	f.wantSwept(sweeper(), 0)
}

func sweepForever(_ *testing.T, f *fixture) {
	f.end(store.Success)
	f.end(store.Death)
	f.advance(50 * 365 * 24 * time.Hour)
	for _, d := range []time.Duration{0, -1, store.KeepForever} {
		f.wantSwept(store.SweepRequest{By: uuid.New(), Retention: d, RetentionDead: d, Limit: 10}, 0)
		f.advance(2 * time.Hour)
	}
	f.wantSwept(store.SweepRequest{By: uuid.New(), Retention: store.KeepForever, RetentionDead: time.Hour, Limit: 10}, 1)
	f.advance(2 * time.Hour)
	f.wantSwept(store.SweepRequest{By: uuid.New(), Retention: time.Hour, Limit: 10}, 1)
}

func sweepOddIDs(_ *testing.T, f *fixture) {
	odd := []store.RunID{
		uuid.MustParse("00000000-0000-7000-8000-000000000001"), uuid.MustParse("01000000-0000-7000-8000-000000000001"),
		uuid.MustParse("7fffffff-ffff-7fff-bfff-ffffffffffff"), uuid.MustParse("ffffffff-ffff-7fff-bfff-ffffffffffff"),
	}
	for _, id := range odd {
		f.end(store.Success, func(r *store.NewRun) { r.ID = id })
	}
	f.end(store.Success)
	f.wantSwept(sweeper(), 0)
	f.advance(26 * time.Hour)
	f.wantSwept(sweeper(), len(odd)+1)
}

func sweepInSteps(t *testing.T, f *fixture) {
	for range 7 {
		f.end(store.Death)
	}
	f.advance(200 * time.Hour)
	request := sweeper()
	request.Limit = 3
	deleted := 0
	for steps := 0; ; steps++ {
		swept, err := f.store.Sweep(f.ctx, request)
		if err != nil || swept.Busy || steps > 100 {
			t.Fatalf("step %d: %+v, %v", steps, swept, err)
		}
		if swept.Deleted > 3 {
			t.Errorf("a step deleted %d runs, want at most 3", swept.Deleted)
		}
		if deleted += swept.Deleted; swept.Done {
			break
		}
	}
	if deleted != 7 {
		t.Errorf("%d runs were deleted, want 7", deleted)
	}
}

func sweepBusy(t *testing.T, f *fixture) {
	for range 3 {
		f.end(store.Success)
	}
	f.advance(26 * time.Hour)
	first, second := sweeper(), sweeper()
	first.Limit = 1
	step := func(request store.SweepRequest) store.SweepResult {
		swept, err := f.store.Sweep(f.ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		return swept
	}
	if swept := step(first); swept.Done || swept.Busy || swept.Deleted != 1 {
		t.Fatalf("the first step: %+v, want one deleted and more to do", swept)
	}
	if swept := step(second); !swept.Busy || swept.Deleted > 0 {
		t.Errorf("another sweeper: %+v, want it busy", swept)
	}
	f.advance(store.SweepTenure + time.Second)
	f.wantSwept(second, 2)
	if swept := step(first); swept.Busy {
		t.Errorf("busy, and the other one is done: %+v", swept)
	}
}

func sweepAndEnqueue(_ *testing.T, f *fixture) {
	run := newRun()
	f.end(store.Death, func(r *store.NewRun) { r.ID = run.ID })
	f.advance(200 * time.Hour)
	f.wantSwept(sweeper(), 1)
	f.enqueue(run)
	if record := f.record(run.ID); record.State != store.Pending || len(record.Attempts) != 0 || record.Error != nil {
		f.t.Errorf("the new run is %+v, want it to know nothing of the old one", record)
	}
}

// strand makes a run that is running under a claim without a lease: a
// settlement that says it is the claim's last, and is not.
func (f *fixture) strand(worker store.WorkerID, changes ...func(*store.NewRun)) (store.ClaimRequest, store.ClaimedRun) {
	f.t.Helper()
	f.enqueue(newRuns(2, changes...)...)
	request := f.request(worker, 2)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 2 {
		f.t.Fatalf("claimed %d runs, %v, want 2", len(claimed), err)
	}
	f.settle(one(request.Claim, worker, claimed[0].ID, success()))
	return request, claimed[1]
}

func sweepStranded(t *testing.T, f *fixture) {
	w1 := newWorker("w1")
	request, lost := f.strand(w1)
	f.enqueue(newRun())
	other, alive := f.claimOne(newWorker("w2"))
	swept := f.sweep(sweeper())
	if len(swept.Returned) != 1 || swept.Deleted != 0 {
		t.Fatalf("swept %+v, want one run returned", swept)
	}
	if r := swept.Returned[0]; r.ID != lost.ID || r.State != store.Pending || r.Job != "mail" || r.Queue != store.DefaultQueue || r.Worker != "w1" || r.CrashCount != 0 {
		t.Errorf("returned %+v", r)
	}
	record := f.record(lost.ID)
	if record.State != store.Pending || record.Attempt != 0 || record.CrashCount != 0 || len(record.Attempts) != 0 {
		t.Errorf("the run is %+v, want it as it was before the claim", record)
	}
	if verdicts := f.settle(one(request.Claim, w1, lost.ID, success())); verdicts[0] != store.Rejected {
		t.Errorf("a late settle is %v, want it refused", verdicts[0])
	}
	if _, again := f.claimOne(newWorker("w3")); again.ID != lost.ID || again.Attempt != 1 || again.Fence <= lost.Fence {
		t.Errorf("claimed %+v, want run %s in its first attempt with a higher fence", again, lost.ID)
	}
	if verdicts := f.settle(one(other, newWorker("w2"), alive.ID, success())); verdicts[0] != store.Applied {
		t.Errorf("the settle of a run with a lease is %v, want it accepted", verdicts[0])
	}
}

func sweepStrandedDead(t *testing.T, f *fixture) {
	_, lost := f.strand(newWorker("w1"), func(r *store.NewRun) { r.OnCrash = store.CrashDead })
	swept := f.sweep(sweeper())
	if len(swept.Returned) != 1 || swept.Returned[0].State != store.Dead {
		t.Fatalf("swept %+v, want one run dead", swept)
	}
	if record := f.record(lost.ID); record.State != store.Dead || record.FinishedAt == nil || record.Error == nil {
		t.Errorf("the run is %+v, want it dead with a reason", record)
	}
}

func sweepExpired(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	_, run := f.claimOne(newWorker("w1"))
	f.advance(3 * time.Hour)
	f.wantSwept(sweeper(), 0)
	if done := f.reclaim(); len(done.Runs) != 1 || done.Runs[0].ID != run.ID || done.Runs[0].CrashCount != 1 {
		t.Errorf("reclaimed %+v, want the run with one crash", done.Runs)
	}
}

// doSweep sweeps until Done.
func (p *player) doSweep(c command) error {
	request := sweeper()
	request.Retention, request.RetentionDead = c.duration("retention", request.Retention), c.duration("dead", request.RetentionDead)
	swept := p.sweep(request)
	p.say("%d deleted", swept.Deleted)
	var lines []string
	for _, run := range swept.Returned {
		lines = append(lines, fmt.Sprintf("%s %v, its lease has gone", p.names[run.ID], run.State))
	}
	p.sayLines(lines)
	return nil
}
