package storetest

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func settleTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"zombie cannot settle, in any way":                            zombieSettles,
		"zombie cannot settle a run that no worker has claimed again": zombieBeforeClaim,
		"zombie cannot settle a run that is finished":                 zombieAfterEnd,
		"zombie cannot end or extend the lease of its successor":      zombieLease,
		"a claim that never was is refused for every run":             unknownClaim,
		"a run that never was is refused, and its neighbours are not": unknownRun,
		"one stolen run among five hundred is the only one refused":   oneOfFiveHundred,
		"verdicts come settlement after settlement":                   verdictOrder,
		"a thousand outcomes of every kind are settled in one call":   settleThousand,
		"a settlement without runs ends the lease":                    settleNothing,
		"a lease lasts until the last settle of its claim":            lastEndsLease,
		"a settle of nothing does nothing":                            settleEmpty,
		"an attempt ends when its handler has returned":               settleTook,
		"a run is held while it is running under its claim":           stillHeld,
		"a misfit spends no attempt, is recorded and keeps its place": misfit,
		"another server than before reclaims nothing":                 reclaimElsewhere,
	}
}

// outcomes is one of each kind that a worker may settle.
func outcomes() []store.Outcome {
	return []store.Outcome{
		{Kind: store.Success, Result: []byte(`1`)},
		{Kind: store.Failure, After: time.Hour, Error: "failed", Stack: "stack"},
		{Kind: store.Death, Error: "died"},
		{Kind: store.Cancellation, Error: "cancelled"},
		{Kind: store.Snoozed, After: time.Hour},
		{Kind: store.HandedBack},
		{Kind: store.Misfit, After: time.Hour, Error: "does not fit", Unbegun: true},
	}
}

// zombie is a claim of one run that was taken over by the very same worker:
// same process, same name. Only the claim's id distinguishes the two.
type zombie struct {
	worker      store.WorkerID
	stale, held lease.ClaimID
	run         store.RunID
}

func (f *fixture) zombie() zombie {
	f.t.Helper()
	f.enqueue(newRun())
	z := zombie{worker: newWorker("w1")}
	var first, second store.ClaimedRun
	z.stale, first = f.claimOne(z.worker)
	f.advance(31 * time.Second)
	want := store.ReclaimedRun{
		ID: first.ID, Lane: first.Lane, Job: "mail", Queue: store.DefaultQueue, Worker: "w1", State: store.Pending, CrashCount: 1,
	}
	if done := f.reclaim(); len(done.Runs) != 1 || done.Runs[0] != want {
		f.t.Fatalf("reclaimed %+v, want %+v", done, want)
	}
	z.held, second = f.claimOne(z.worker)
	if first.ID != second.ID || second.Fence <= first.Fence || second.Attempt != 1 || second.CrashCount != 1 {
		f.t.Fatalf("claimed %+v and then %+v", first, second)
	}
	z.run = first.ID
	return z
}

// unchanged does something that must not change the run.
func (f *fixture) unchanged(id store.RunID, do func()) {
	f.t.Helper()
	before := f.record(id)
	do()
	if after := f.record(id); !reflect.DeepEqual(before, after) {
		f.t.Errorf("the run was\n%+v and is now\n%+v", before, after)
	}
}

func zombieSettles(t *testing.T, f *fixture) {
	z := f.zombie()
	for _, outcome := range outcomes() {
		f.unchanged(z.run, func() {
			if verdicts := f.settle(one(z.stale, z.worker, z.run, outcome)); verdicts[0] != store.Rejected {
				t.Errorf("%v under a stale claim: verdict %d, want refused", outcome.Kind, verdicts[0])
			}
		})
	}
	if verdicts := f.settle(one(z.held, z.worker, z.run, success())); verdicts[0] != store.Applied {
		t.Errorf("the holder's settle: verdict %d, want accepted", verdicts[0])
	}
}

func zombieBeforeClaim(t *testing.T, f *fixture) {
	for _, outcome := range outcomes() {
		run := newRun()
		f.enqueue(run)
		worker := newWorker("w1")
		claim, _ := f.claim(worker, 10)
		f.advance(31 * time.Second)
		f.reclaim()
		f.unchanged(run.ID, func() {
			if verdicts := f.settle(one(claim, worker, run.ID, outcome)); verdicts[0] != store.Rejected {
				t.Errorf("%v after a reclaim: verdict %d, want refused", outcome.Kind, verdicts[0])
			}
		})
	}
}

func zombieAfterEnd(t *testing.T, f *fixture) {
	for _, ending := range []store.Outcome{outcomes()[0], outcomes()[2], outcomes()[3]} {
		z := f.zombie()
		f.settle(one(z.held, z.worker, z.run, ending))
		for _, outcome := range outcomes() {
			f.unchanged(z.run, func() {
				if verdicts := f.settle(one(z.stale, z.worker, z.run, outcome)); verdicts[0] != store.Rejected {
					t.Errorf("%v after %v: verdict %d, want refused", outcome.Kind, ending.Kind, verdicts[0])
				}
				if verdicts := f.settle(one(z.held, z.worker, z.run, outcome)); verdicts[0] != store.AlreadyApplied {
					t.Errorf("%v after one's own %v: verdict %d, want landed", outcome.Kind, ending.Kind, verdicts[0])
				}
			})
		}
	}
}

func zombieLease(t *testing.T, f *fixture) {
	z := f.zombie()
	f.settle(one(z.stale, z.worker, z.run, success()))
	renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{z.stale}, time.Hour)
	if err != nil || len(renewed) != 0 {
		t.Errorf("a stale claim was renewed: %v, %v", renewed, err)
	}
	renewed, err = f.store.Renew(f.ctx, []lease.ClaimID{z.stale, z.held}, 30*time.Second)
	if err != nil || len(renewed) != 1 || renewed[0] != z.held {
		t.Errorf("renewed %v, %v, want the holder's claim only", renewed, err)
	}
	f.advance(31 * time.Second)
	if done := f.reclaim(); len(done.Runs) != 1 {
		t.Errorf("the holder's lease did not expire when it should: %+v", done)
	}
}

func unknownClaim(t *testing.T, f *fixture) {
	runs := newRuns(3)
	f.enqueue(runs...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 2)
	f.settle(store.Settlement{Claim: claim, Worker: worker, Runs: []store.Settled{{ID: claimed[0].ID, Outcome: success()}}})
	for _, stranger := range []lease.ClaimID{lease.NewClaimID(), {}} {
		settlement := store.Settlement{Claim: stranger, Worker: worker, Last: true}
		for _, run := range runs {
			for _, outcome := range outcomes() {
				settlement.Runs = append(settlement.Runs[:0], store.Settled{ID: run.ID, Outcome: outcome})
				f.unchanged(run.ID, func() {
					if verdicts := f.settle(settlement); verdicts[0] != store.Rejected {
						t.Errorf("%v under an unknown claim: verdict %d, want refused", outcome.Kind, verdicts[0])
					}
				})
			}
		}
	}
}

func unknownRun(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	verdicts := f.settle(store.Settlement{Claim: claim, Worker: worker, Last: true, Runs: []store.Settled{
		{ID: store.NewRunID(), Outcome: success()},
		{ID: claimed.ID, Outcome: success()},
		{ID: store.NewRunID(), Outcome: store.Outcome{Kind: store.Death, Error: "gone"}},
	}})
	want := []store.Verdict{store.Rejected, store.Applied, store.Rejected}
	if !reflect.DeepEqual(verdicts, want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
}

func oneOfFiveHundred(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRun())
	stolen, stolenRuns := f.claim(worker, 1)
	f.advance(31 * time.Second)
	f.reclaim()
	thief, _ := f.claim(newWorker("w2"), 1)
	f.enqueue(newRuns(499)...)
	held, heldRuns := f.claim(worker, 499)
	if len(heldRuns) != 499 {
		t.Fatalf("claimed %d runs, want 499", len(heldRuns))
	}
	verdicts := f.settle(all(stolen, worker, stolenRuns, success()), all(held, worker, heldRuns, success()))
	for i, verdict := range verdicts {
		if (verdict == store.Rejected) != (i == 0) || (verdict == store.Applied) != (i > 0) {
			t.Fatalf("verdict %d is %d", i, verdict)
		}
	}
	if counts := f.counts(); counts[store.Succeeded] != 499 || counts[store.Running] != 1 {
		t.Errorf("counts %v, want 499 succeeded and 1 running", counts)
	}
	renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{thief}, time.Minute)
	if err != nil || len(renewed) != 1 {
		t.Errorf("the lease of the thief: %v, %v", renewed, err)
	}
}

func verdictOrder(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRuns(6)...)
	c1, first := f.claim(worker, 3)
	c2, second := f.claim(worker, 3)
	done := func(id store.RunID) store.Settled { return store.Settled{ID: id, Outcome: success()} }
	f.settle(store.Settlement{Claim: c1, Worker: worker, Runs: []store.Settled{done(first[1].ID)}})
	verdicts := f.settle(
		store.Settlement{Claim: c2, Worker: worker, Runs: []store.Settled{done(second[2].ID), done(first[0].ID)}},
		store.Settlement{Claim: c1, Worker: worker, Runs: []store.Settled{done(first[1].ID), done(first[2].ID), done(second[0].ID)}},
		store.Settlement{Claim: c2, Worker: worker, Runs: []store.Settled{done(second[1].ID)}},
	)
	want := []store.Verdict{
		store.Applied, store.Rejected, store.AlreadyApplied, store.Applied, store.Rejected, store.Applied,
	}
	if !reflect.DeepEqual(verdicts, want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
}

func settleThousand(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRuns(1000)...)
	claim, claimed := f.claim(worker, 1000)
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	want := map[store.State]int64{}
	for i, c := range claimed {
		outcome := outcomes()[i%len(outcomes())]
		want[outcome.Kind.State()]++
		settlement.Runs = append(settlement.Runs, store.Settled{ID: c.ID, Outcome: outcome})
	}
	for i, verdict := range f.settle(settlement) {
		if verdict != store.Applied {
			t.Fatalf("verdict %d is %d, want accepted", i, verdict)
		}
	}
	for state, n := range f.counts() {
		if n != want[state] {
			t.Errorf("%d runs are %v, want %d", n, state, want[state])
		}
	}
	for i, verdict := range f.settle(settlement) {
		if verdict != store.AlreadyApplied {
			t.Fatalf("verdict %d of the repeat is %d, want landed", i, verdict)
		}
	}
}

func settleNothing(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	f.settle(store.Settlement{Claim: claim, Worker: worker, Runs: []store.Settled{{ID: claimed.ID, Outcome: success()}}})
	f.settle(store.Settlement{Claim: claim, Worker: worker, Last: true})
	renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{claim}, time.Minute)
	if err != nil || len(renewed) != 0 {
		t.Errorf("the lease still exists: %v, %v", renewed, err)
	}
}

func lastEndsLease(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRuns(3)...)
	claim, claimed := f.claim(worker, 3)
	for i, c := range claimed {
		settlement := one(claim, worker, c.ID, success())
		settlement.Last = i == 2
		f.settle(settlement)
		renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{claim}, 30*time.Second)
		if err != nil || (len(renewed) == 1) != (i < 2) {
			t.Fatalf("after settle %d of 3: renewed %v, %v", i+1, renewed, err)
		}
	}
	f.advance(time.Hour)
	if done := f.reclaim(); done.Leases != 0 || len(done.Runs) != 0 {
		t.Errorf("reclaimed %+v, want nothing left", done)
	}
}

func settleEmpty(t *testing.T, f *fixture) {
	if verdicts := f.settle(); len(verdicts) != 0 {
		t.Errorf("verdicts %v", verdicts)
	}
	renewed, err := f.store.Renew(f.ctx, nil, time.Minute)
	if err != nil || len(renewed) != 0 {
		t.Errorf("Renew of nothing: %v, %v", renewed, err)
	}
	f.enqueue(newRun())
	if done := f.reclaim(); done.Leases != 0 || len(done.Runs) != 0 || done.Now.IsZero() {
		t.Errorf("Reclaim of nothing: %+v", done)
	}
}

// settleTook settles attempts whose handlers have returned long ago.
func settleTook(t *testing.T, f *fixture) {
	for _, c := range []struct {
		took, want time.Duration
	}{{0, time.Minute}, {1500 * time.Millisecond, 1500 * time.Millisecond}, {time.Hour, time.Minute}} {
		f.enqueue(newRun())
		worker := newWorker("w1")
		claim, run := f.claimOne(worker)
		f.advance(time.Minute)
		f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Death, Error: "bad", Took: c.took}))
		attempts := f.record(run.ID).Attempts
		if len(attempts) != 1 {
			t.Fatalf("attempts: %+v", attempts)
		}
		if got := attempts[0].EndedAt.Sub(attempts[0].StartedAt); got < c.want || got > c.want+30*time.Second || c.took == 1500*time.Millisecond && got != c.took {
			t.Errorf("the handler took %v of a minute, the attempt %v", c.took, got)
		}
	}
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(1, limited("api"))
	f.enqueue(runs...)
	claimed := f.wantAdmitted("a limited run", runs...)
	f.advance(time.Minute)
	claimed.end(store.Outcome{Kind: store.Death, Error: "bad", Took: 1500 * time.Millisecond})
	if last := f.record(runs[0].ID).Attempts[0]; last.EndedAt.Sub(last.StartedAt) != 1500*time.Millisecond {
		t.Errorf("the handler of a limited run took 1.5 s of a minute, the attempt %v", last.EndedAt.Sub(last.StartedAt))
	}
}

func stillHeld(t *testing.T, f *fixture) {
	w := newWorker("w1")
	f.enqueue(newRuns(4)...)
	first, runs := f.claim(w, 2)
	second, others := f.claim(w, 2)
	f.settle(store.Settlement{Claim: first, Worker: w, Runs: []store.Settled{{ID: runs[0].ID, Outcome: success()}}})
	held, err := f.store.StillHeld(f.ctx, []store.Holder{
		{Run: runs[0].ID, Claim: first}, {Run: runs[1].ID, Claim: first}, {Run: others[0].ID, Claim: second},
		{Run: others[1].ID, Claim: first}, {Run: others[1].ID}, {Run: store.NewRunID(), Claim: first},
	})
	if err != nil || len(held) != 2 || !slices.Contains(held, runs[1].ID) || !slices.Contains(held, others[0].ID) {
		t.Errorf("held are %v, %v, want %s and %s", held, err, runs[1].ID, others[0].ID)
	}
	if held, err := f.store.StillHeld(f.ctx, nil); err != nil || len(held) > 0 {
		t.Errorf("of none, held are %v, %v", held, err)
	}
}

// reclaimElsewhere names a server that is not the one that answers, where a store has one.
func reclaimElsewhere(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	f.claimOne(newWorker("w1"))
	f.advance(31 * time.Second)
	server := f.reclaimOf(0, 0).Server
	if server == 0 {
		return
	}
	if done := f.reclaimOf(server+1, 10); len(done.Runs) > 0 || done.Server != server || done.Now.IsZero() {
		t.Errorf("another server has reclaimed %+v", done)
	}
	if done := f.reclaimOf(server, 10); len(done.Runs) != 1 || done.Server != server {
		t.Errorf("the same server has reclaimed %+v", done)
	}
}

func (f *fixture) reclaimOf(server int64, most int) store.ReclaimResult {
	f.t.Helper()
	done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: most, Server: server})
	if err != nil {
		f.t.Fatalf("Reclaim: %v", err)
	}
	return done
}

// misfit settles a run whose args do not fit: it waits with its place, so that no younger run
// of its key overtakes it.
func misfit(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	first, second := newRun(limited("tenant!finished=a")), newRun(limited("tenant!finished=a"))
	f.enqueue(first)
	f.enqueue(second)
	f.wantAdmitted("the first", first).end(store.Outcome{Kind: store.Misfit, Error: "does not fit", After: time.Minute, Unbegun: true})
	r := f.record(first.ID)
	if r.State != store.Pending || r.Attempt != 0 || r.Error == nil || *r.Error != "does not fit" || r.DueAt.Before(f.now().Add(50*time.Second)) {
		t.Errorf("the run is %v, attempt %d, due at %v; want it pending in a minute, with no attempt spent, and the error", r.State, r.Attempt, r.DueAt)
	}
	if len(r.Attempts) != 1 || r.Attempts[0].Outcome != store.Misfit || r.Attempts[0].Number != 1 || *r.Attempts[0].Error != "does not fit" {
		t.Errorf("attempts %+v, want one misfit", r.Attempts)
	}
	f.wantAdmitted("nothing, while the first one waits")
	f.advance(time.Minute)
	f.wantAdmitted("the first one again", first).end(success())
	f.wantAdmitted("the second", second).end(success())
}
