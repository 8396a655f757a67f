package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// crashCase is what decides about a run whose worker is gone.
type crashCase struct {
	cancel  bool // it was asked to be cancelled
	policy  store.CrashPolicy
	crashes int  // before this one
	alone   bool // it was executed alone
	most    int  // MaxCrashes
}

func (c crashCase) String() string {
	return fmt.Sprintf("cancel %v, policy %v, %d crashes before, alone %v, max crashes %d", c.cancel, c.policy, c.crashes, c.alone, c.most)
}

// crashCases are all combinations that a run can come to: one whose policy is
// CrashDead has no crash before.
func crashCases() (cases []crashCase) {
	for _, cancel := range []bool{false, true} {
		for _, alone := range []bool{false, true} {
			for _, most := range []int{2, 100} {
				cases = append(cases, crashCase{cancel, store.CrashDead, 0, alone, most})
				for crashes := range 4 {
					cases = append(cases, crashCase{cancel, store.CrashRetry, crashes, alone, most})
				}
			}
		}
	}
	return cases
}

// reclaimed is what becomes of the run when its lease has expired. The crash
// rule is stronger than a request for its cancel.
func (c crashCase) reclaimed() store.State {
	switch {
	case c.policy == store.CrashDead, c.alone && c.crashes+1 >= c.most:
		return store.Dead
	case c.cancel:
		return store.Cancelled
	default:
		return store.Pending
	}
}

// returned is what becomes of it when its lease has gone: no crash is counted.
func (c crashCase) returned() store.State {
	switch {
	case c.policy == store.CrashDead:
		return store.Dead
	case c.cancel:
		return store.Cancelled
	default:
		return store.Pending
	}
}

// arrange brings a run to where its worker is gone.
func (f *fixture) arrange(c crashCase) (request store.ClaimRequest, id store.RunID) {
	f.t.Helper()
	run := newRun(func(r *store.NewRun) { r.OnCrash = c.policy })
	f.enqueue(run)
	for range c.crashes {
		f.claimLine(run.ID, func(*store.ClaimRequest) {})
		f.advance(31 * time.Second)
		if _, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 100, Limit: 100}); err != nil {
			f.t.Fatalf("Reclaim: %v", err)
		}
	}
	request = f.claimLine(run.ID, func(r *store.ClaimRequest) { r.Alone = c.alone })
	if c.cancel {
		f.operate(store.CancelRuns, run.ID)
	}
	return request, run.ID
}

// claimLine claims the only waiting run, from whatever line it waits in.
func (f *fixture) claimLine(id store.RunID, change func(*store.ClaimRequest)) store.ClaimRequest {
	f.t.Helper()
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w1"), Duration: 30 * time.Second, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	change(&request)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1 || claimed[0].ID != id {
		f.t.Fatalf("claimed %+v, %v, want run %s", claimed, err, id)
	}
	return request
}

func crashRuleOfReclaim(t *testing.T, f *fixture) {
	for _, c := range crashCases() {
		_, id := f.arrange(c)
		f.advance(31 * time.Second)
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: c.most, Limit: 100})
		if err != nil || len(done.Runs) != 1 || done.Runs[0].ID != id {
			t.Fatalf("%v: reclaimed %+v, %v", c, done, err)
		}
		if run := done.Runs[0]; run.State != c.reclaimed() || run.CrashCount != c.crashes+1 || (run.Lane < 0) != (c.crashes > 0) {
			t.Errorf("%v: %+v, want it %v", c, run, c.reclaimed())
		}
		f.wantEnded(c.String(), id, c.reclaimed())
	}
}

func crashRuleOfSweep(t *testing.T, f *fixture) {
	for _, c := range crashCases() {
		request, id := f.arrange(c)
		f.loseLease(request)
		f.advance(store.SweepPassEvery)
		swept := f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
		if len(swept.Returned) != 1 || swept.Returned[0].ID != id {
			t.Fatalf("%v: swept %+v", c, swept)
		}
		if run := swept.Returned[0]; run.State != c.returned() || run.CrashCount != c.crashes {
			t.Errorf("%v: %+v, want it %v", c, run, c.returned())
		}
		f.wantEnded(c.String(), id, c.returned())
	}
}

// wantEnded looks at the record of a run, and ends it if it is pending, so that
// it is in nobody's way.
func (f *fixture) wantEnded(what string, id store.RunID, state store.State) {
	f.t.Helper()
	record := f.record(id)
	if record.State != state || (record.FinishedAt != nil) != state.Terminal() || state.Terminal() && (record.Error == nil || *record.Error == "") {
		f.t.Errorf("%s: the record is %+v, want it %v, with a reason if that is an end", what, record, state)
	}
	if state == store.Cancelled && *record.Error != "cancelled by ann: "+reason && *record.Error != reason {
		f.t.Errorf("%s: cancelled for %q", what, *record.Error)
	}
	if !state.Terminal() {
		f.operate(store.CancelRuns, id)
	}
}

// loseLease ends the lease of a claim whose run goes on: a settlement that says
// it is the claim's last, and is of none.
func (f *fixture) loseLease(request store.ClaimRequest) {
	f.t.Helper()
	f.settle(store.Settlement{Claim: request.Claim, Worker: request.Worker, Last: true})
}

// reclaimParts takes the runs of large leases a few at a time.
func reclaimParts(t *testing.T, f *fixture) {
	f.enqueue(newRuns(50)...)
	f.claim(newWorker("w1"), 30)
	f.claim(newWorker("w2"), 20)
	f.advance(31 * time.Second)
	taken := map[store.RunID]int{}
	for step := 0; ; step++ {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10, Runs: 7})
		if err != nil || len(done.Runs) > 7 || len(done.Passed) > 0 || !done.Soon && len(done.Runs) > 0 {
			t.Fatalf("step %d: %+v, %v", step, done, err)
		}
		if len(done.Runs) == 0 {
			break
		}
		for _, run := range done.Runs {
			taken[run.ID] = run.CrashCount
		}
	}
	if len(taken) != 50 {
		t.Errorf("%d runs were taken, want 50", len(taken))
	}
	for id, crashes := range taken {
		if record := f.record(id); record.State != store.Pending || record.CrashCount != 1 || crashes != 1 {
			t.Errorf("the run is %+v", record)
		}
	}
	if _, claimed := f.claim(newWorker("w3"), 100); len(claimed) != 50 {
		t.Errorf("%d runs can be claimed then, want 50", len(claimed))
	}
}

// reclaimLooks asks without taking anything.
func reclaimLooks(t *testing.T, f *fixture) {
	look := func(ahead time.Duration) bool {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Ahead: ahead})
		if err != nil || done.Now.IsZero() || done.Leases > 0 || len(done.Runs) > 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		return done.Soon
	}
	if look(time.Hour) {
		t.Error("nothing is leased")
	}
	f.enqueue(newRun())
	f.claimOne(newWorker("w1"))
	if look(0) || look(20*time.Second) || !look(31*time.Second) {
		t.Error("the lease expires in 30 s")
	}
	f.advance(15 * time.Second)
	if look(0) || !look(20*time.Second) {
		t.Error("the lease expires in 15 s")
	}
	f.advance(16 * time.Second)
	if !look(0) {
		t.Error("the lease has expired")
	}
	if done := f.reclaim(); len(done.Runs) != 1 || !done.Soon {
		t.Errorf("%+v", done)
	}
	if look(time.Hour) {
		t.Error("nothing is leased any more")
	}
}

// touchWorker writes the row of a worker that is known, and of one that is not.
func touchWorker(t *testing.T, f *fixture) {
	known := newWorker("w1")
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: known}); err != nil {
		t.Fatal(err)
	}
	for _, worker := range []store.WorkerID{known, known, newWorker("w2")} {
		if err := f.store.Touch(f.ctx, worker); err != nil {
			t.Errorf("Touch: %v", err)
		}
	}
	f.enqueue(newRun())
	if _, run := f.claimOne(known); run.Attempt != 1 {
		t.Errorf("claimed %+v", run)
	}
}
