package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// What keeps a run from starting is provoked, explained and removed: then the run starts.
func explainTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"not due":              explainNotDue,
		"a retry":              explainRetry,
		"a snooze":             explainSnooze,
		"a paused queue":       explainPaused,
		"no worker":            explainNoWorker,
		"an earlier name":      explainAlias,
		"silent workers":       explainSilent,
		"draining workers":     explainDraining,
		"full workers":         explainFull,
		"runs before it":       explainBehind,
		"isolated":             explainIsolated,
		"a full limit":         explainLimit,
		"a draining limit":     explainLimitDraining,
		"a rate":               explainRate,
		"a penalty":            explainPenalty,
		"a limit of 0":         explainZero,
		"a permit of its own":  explainOwnPermit,
		"workers that poll":    explainPolling,
		"an expiry":            explainExpires,
		"executing":            explainExecuting,
		"past its timeout":     explainTimeout,
		"an expired lease":     explainExpiredLease,
		"a rest after outages": explainResting,
		"no lease":             explainNoLease,
		"ended":                explainEnded,
		"the last attempt":     factsOfSuccess,
		"a key that is held":   explainKeyHeld,
		"a key given up":       explainKeyGivenUp,
		"deleted":              explainDeleted,
		"aged out, or unknown": explainAbsent,
	}
}

// presentAs has a worker report, changed.
func (f *fixture) presentAs(worker store.WorkerID, number int64, change func(*store.Presence), did ...store.LaneTally) {
	f.t.Helper()
	p := present()
	if p.Stuck = 0; change != nil {
		change(&p)
	}
	if _, err := f.store.ReportWorker(f.ctx, store.WorkerReport{Worker: worker, Number: number, Presence: p, Did: did}); err != nil {
		f.t.Fatalf("ReportWorker: %v", err)
	}
}

func (f *fixture) explain(id store.RunID) operate.Explanation {
	f.t.Helper()
	facts, err := f.store.Facts(f.ctx, id)
	if err != nil {
		f.t.Fatalf("Facts: %v", err)
	}
	return operate.Explain(facts)
}

// wantKinds wants these kinds of reasons, in any order, and returns the explanation.
func (f *fixture) wantKinds(id store.RunID, kinds ...operate.BlockerKind) operate.Explanation {
	f.t.Helper()
	e := f.explain(id)
	var got []operate.BlockerKind
	for _, b := range e.Blockers {
		got = append(got, b.Kind)
	}
	sorted := slices.Sorted(slices.Values(got))
	if slices.Sort(kinds); !slices.Equal(sorted, kinds) {
		f.t.Fatalf("it is explained by %v, want %v: %s", got, kinds, e.Summary)
	}
	return e
}

// wantText wants the summary to say something.
func (f *fixture) wantText(e operate.Explanation, parts ...string) {
	f.t.Helper()
	for _, part := range parts {
		if !strings.Contains(e.Summary, part) {
			f.t.Errorf("it is explained by %q, without %q", e.Summary, part)
		}
	}
}

// starts wants nothing to keep a run from starting, and a claim to take it.
func (f *fixture) starts(id store.RunID, more ...operate.BlockerKind) {
	f.t.Helper()
	e := f.wantKinds(id, more...)
	if e.Earliest == nil || e.Earliest.After(e.At) || !e.Sure && len(more) == 0 {
		f.t.Errorf("earliest %v at %v, sure %v", e.Earliest, e.At, e.Sure)
	}
	if len(f.record(id).Limits) > 0 {
		for _, a := range f.admitAll(10) {
			if slices.ContainsFunc(a.runs, func(r store.ClaimedRun) bool { return r.ID == id }) {
				return
			}
		}
		f.t.Fatalf("the run is not admitted although nothing keeps it")
	}
	_, claimed := f.claim(newWorker("starts"), 100)
	if !slices.ContainsFunc(claimed, func(r store.ClaimedRun) bool { return r.ID == id }) {
		f.t.Fatalf("the run is not claimed although nothing keeps it")
	}
}

func explainNotDue(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	run := newRun(func(r *store.NewRun) { r.After = 5 * time.Second })
	f.enqueue(run)
	e := f.wantKinds(run.ID, operate.BlockerNotDue)
	if e.State == nil || *e.State != store.Pending || e.Earliest == nil || !e.Sure || !e.Earliest.Equal(f.record(run.ID).DueAt) || e.Ahead != nil {
		t.Errorf("explained %+v", e)
	}
	f.advance(5 * time.Second)
	f.starts(run.ID)
}

func explainRetry(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.enqueue(newRun())
	claim, run := f.claimOne(newWorker("w1"))
	f.settle(one(claim, newWorker("w1"), run.ID, store.Outcome{Kind: store.Failure, After: 10 * time.Second, Error: "smtp 421"}))
	e := f.wantKinds(run.ID, operate.BlockerRetryDelay)
	f.wantText(e, "attempt 1 of ", "smtp 421")
	if !e.Sure || e.Blockers[0].Since == nil || e.Blockers[0].EndsAt == nil {
		t.Errorf("explained %+v", e)
	}
	f.advance(10 * time.Second)
	f.starts(run.ID)
}

func explainSnooze(_ *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.enqueue(newRun())
	claim, run := f.claimOne(newWorker("w1"))
	f.settle(one(claim, newWorker("w1"), run.ID, store.Outcome{Kind: store.Snoozed, After: 10 * time.Second}))
	f.wantKinds(run.ID, operate.BlockerSnoozed)
	f.advance(10 * time.Second)
	f.starts(run.ID)
}

func explainPaused(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	run := newRun()
	f.enqueue(run)
	f.setQueue(store.DefaultQueue, store.PauseQueue)
	e := f.wantKinds(run.ID, operate.BlockerQueuePaused)
	if b := e.Blockers[0]; b.By == nil || *b.By == "" || b.Since == nil || e.Earliest != nil || e.Sure || e.Next[0].Command != "queues resume default" {
		t.Errorf("explained %+v", e)
	}
	f.setQueue(store.DefaultQueue, store.ResumeQueue)
	f.starts(run.ID)
}

func explainNoWorker(_ *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "no worker serves job mail on queue default", "no worker has ever declared the job")
	declares := newWorker("declares")
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: declares, Jobs: []store.JobInfo{{Name: "mail", Queue: "default", MaxAttempts: 1}}}); err != nil {
		f.t.Fatal(err)
	}
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "were stopped")
	w := newWorker("w")
	f.presentAs(w, 1, func(p *store.Presence) { p.Jobs = []string{"fax"} })
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "do not have the job", "durable.Alias", "w")
	f.presentAs(w, 2, func(p *store.Presence) { p.Queues = []string{"fast", "slow"} })
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "serve the queues fast, slow")
	f.presentAs(w, 3, nil)
	f.starts(run.ID)
}

func explainSilent(t *testing.T, f *fixture) {
	w := newWorker("web-7")
	f.presentAs(w, 1, nil)
	f.advance(time.Minute + time.Second)
	run := newRun()
	f.enqueue(run)
	e := f.wantKinds(run.ID, operate.BlockerWorkersSilent)
	if f.wantText(e, "no living worker", "web-7 v1.2"); e.Blockers[0].Since == nil {
		t.Errorf("explained %+v", e)
	}
	f.presentAs(w, 2, nil)
	f.starts(run.ID)
}

func explainDraining(_ *testing.T, f *fixture) {
	w := newWorker("web-7")
	f.presentAs(w, 1, func(p *store.Presence) { p.Draining = true })
	run := newRun()
	f.enqueue(run)
	f.wantText(f.wantKinds(run.ID, operate.BlockerWorkersDraining), "web-7")
	f.presentAs(newWorker("web-8"), 1, nil)
	f.starts(run.ID)
}

func explainBehind(t *testing.T, f *fixture) {
	did := store.LaneTally{Queue: store.DefaultQueue, Job: "mail", Tally: store.Tally{Succeeded: 30}}
	f.presentAs(newWorker("w"), 1, nil, did)
	early := newRuns(3, func(r *store.NewRun) { r.At = f.now().Add(-time.Hour) })
	run := newRun()
	f.enqueue(early...)
	f.enqueue(run)
	f.enqueue(newRun(func(r *store.NewRun) { r.Priority = 3 }), newRun(func(r *store.NewRun) { r.Priority = -3 }))
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue = "slow"; r.At = f.now().Add(-time.Hour) }))
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue = "unserved"; r.At = f.now().Add(-time.Hour) }))
	f.enqueue(newRun(func(r *store.NewRun) { r.After = time.Hour }))
	e := f.wantKinds(run.ID, operate.BlockerBehind)
	if f.wantText(e, "5 due runs are taken first"); e.Ahead == nil || *e.Ahead != (store.Count{N: 5}) || e.Sure || e.Earliest == nil {
		t.Errorf("explained %+v, ahead %+v", e, e.Ahead)
	}
	if eta := e.Earliest.Sub(e.At).Round(time.Second); eta != 50*time.Second && eta != 25*time.Second { // both priorities of a job count its attempts
		t.Errorf("at 30 in five minutes the 5 take %v", eta)
	}
	f.operate(store.CancelRuns, f.pendingBut(run.ID)...)
	f.starts(run.ID)
}

// pendingBut are the ids of the runs that wait, without one.
func (f *fixture) pendingBut(id store.RunID) (ids []store.RunID) {
	for _, r := range f.list(store.Filter{States: []store.State{store.Pending}}).Runs {
		if r.ID != id {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func explainIsolated(_ *testing.T, f *fixture) {
	f.enqueue(newRun())
	var run store.ClaimedRun
	for range 2 {
		_, run = f.claimOne(newWorker("w"))
		f.advance(31 * time.Second)
		f.reclaim()
	}
	w := newWorker("busy")
	f.presentAs(w, 1, nil)
	f.wantText(f.wantKinds(run.ID, operate.BlockerIsolated), "2 crashes", "while it executes nothing else")
	f.presentAs(w, 2, func(p *store.Presence) { p.Executing = 0 })
	f.wantText(f.wantKinds(run.ID, operate.BlockerIsolated), "one is idle")
	request := f.claimLine(run.ID, func(r *store.ClaimRequest) { r.Alone = true })
	if claimed, err := f.store.Claim(f.ctx, request); err != nil || len(claimed) != 1 {
		f.t.Errorf("claimed alone: %v, %v", claimed, err)
	}
}

func explainLimit(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("tenant", 1))
	runs := newRuns(3, limited("tenant=acme"))
	f.enqueue(runs...)
	first := f.wantAdmitted("one", runs[0])
	e := f.wantKinds(runs[2].ID, operate.BlockerLimit)
	f.wantText(e, "limit tenant for acme", "1 of 1 places are in use, by run "+runs[0].ID.String(), "1 run is admitted first")
	if e.Ahead == nil || e.Ahead.N != 1 || e.Earliest != nil || e.Sure || e.Next[0].Command != "limits show tenant --key acme" {
		t.Errorf("explained %+v", e)
	}
	first.end(success())
	f.wantText(f.wantKinds(runs[2].ID, operate.BlockerLimit), "1 run is admitted first")
	f.wantKinds(runs[1].ID)
	f.wantAdmitted("the next", runs[1]).end(success())
	f.starts(runs[2].ID)
}

func explainLimitDraining(_ *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("tenant", 5))
	run := newRun(limited("tenant=acme"))
	f.enqueue(run)
	f.changeLimit(store.DrainLimit, store.Limit{Name: "tenant"})
	f.wantText(f.wantKinds(run.ID, operate.BlockerLimitDraining), "limit tenant for acme is draining")
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "tenant"})
	f.starts(run.ID)
}

func explainRate(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 60, Period: time.Hour, Burst: 1})
	runs := newRuns(2, limited("api"))
	f.enqueue(runs...)
	f.wantAdmitted("one", runs[0]).end(success())
	e := f.wantKinds(runs[1].ID, operate.BlockerLimit)
	if f.wantText(e, "limit api: the next start is in "); e.Earliest == nil || e.Sure || e.Earliest.Sub(e.At) > time.Minute {
		t.Errorf("explained %+v", e)
	}
	f.advance(time.Minute)
	f.presentAs(newWorker("w2"), 1, nil)
	f.starts(runs[1].ID)
}

func explainPenalty(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("api", 5))
	run := newRun(limited("api=k"))
	f.enqueue(run)
	f.penalize("api", "k", 30*time.Second)
	if e := f.wantKinds(run.ID, operate.BlockerLimit); e.Earliest == nil || e.Earliest.Sub(e.At) > 30*time.Second {
		t.Errorf("explained %+v", e)
	}
	f.advance(31 * time.Second)
	f.starts(run.ID)
}

func explainZero(_ *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("api", 5))
	run := newRun(limited("api"))
	f.enqueue(run)
	f.changeLimit(store.SetLimit, semaphore("api", 0))
	f.wantText(f.wantKinds(run.ID, operate.BlockerLimit), "its max is 0")
	f.changeLimit(store.DisableLimit, store.Limit{Name: "api"})
	f.starts(run.ID)
}

// explainOwnPermit explains a retry that has kept its place.
func explainOwnPermit(_ *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("api", 1))
	run := newRun(limited("api!finished"))
	f.enqueue(run)
	f.wantAdmitted("it", run).end(store.Outcome{Kind: store.Failure, After: time.Second, Error: "e"})
	f.wantKinds(run.ID, operate.BlockerRetryDelay)
	f.advance(time.Second)
	f.starts(run.ID)
}

func explainPolling(t *testing.T, f *fixture) {
	w := newWorker("w")
	f.presentAs(w, 1, func(p *store.Presence) { p.Poll = store.Duration(7 * time.Second) })
	run := newRun()
	f.enqueue(run)
	if e := f.wantKinds(run.ID, operate.BlockerPolling); !e.Sure || e.Earliest.Sub(e.At) != 7*time.Second {
		t.Errorf("explained %+v", e)
	}
	f.presentAs(w, 2, nil)
	f.starts(run.ID)
}

func explainExpires(_ *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	run := newRun(func(r *store.NewRun) { r.ExpiresAt = f.now().Add(time.Minute) })
	f.enqueue(run)
	f.wantText(f.wantKinds(run.ID, operate.BlockerExpires), "nothing keeps it")
	f.starts(run.ID, operate.BlockerExpires)
}

func explainExecuting(t *testing.T, f *fixture) {
	w := newWorker("web-7")
	f.presentAs(w, 1, nil)
	f.enqueue(newRun())
	claim, run := f.claimOne(w)
	e := f.wantKinds(run.ID, operate.BlockerExecuting)
	x := e.Execution
	if f.wantText(e, "web-7 executes it, attempt 1 of "); x == nil || x.Worker != "web-7" || x.Instance == nil || *x.Instance != w.Instance || x.LeaseEnd == nil ||
		x.LeaseEnd.Sub(e.At) > 30*time.Second || x.Since == nil || e.Earliest != nil {
		t.Errorf("explained %+v, %+v", e, x)
	}
	if x.LastBeat != nil && x.LastBeat.Sub(e.At).Abs() > time.Minute {
		t.Errorf("the last beat was at %v", x.LastBeat)
	}
	f.operate(store.CancelRuns, run.ID)
	if e = f.wantKinds(run.ID, operate.BlockerExecuting, operate.BlockerCancelAsked); e.Blockers[1].By == nil || *e.Blockers[1].By != "ann" {
		t.Errorf("explained %+v", e)
	}
	f.advance(70 * time.Second)
	if _, err := f.store.Renew(f.ctx, []lease.ClaimID{claim}, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.wantKinds(run.ID, operate.BlockerExecuting, operate.BlockerCancelAsked, operate.BlockerWorkerSilent)
}

func explainTimeout(_ *testing.T, f *fixture) {
	w := newWorker("web-7")
	f.enqueue(newRun(func(r *store.NewRun) { r.Timeout = time.Second }))
	_, run := f.claimOne(w)
	f.advance(2 * time.Second)
	f.presentAs(w, 1, nil)
	f.wantKinds(run.ID, operate.BlockerExecuting, operate.BlockerPastTimeout)
	f.presentAs(w, 2, func(p *store.Presence) { p.Stuck = 1 })
	f.wantKinds(run.ID, operate.BlockerExecuting, operate.BlockerPastTimeout, operate.BlockerStuck)
}
