package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// What the cap of a queue promises: of its runs at most so many execute that started after
// it was set, whatever they are and whenever they were enqueued.
func queueCapTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a capped queue executes so many runs, those that were pending included":       capPending,
		"the cap of a queue is raised, lowered, lifted and set again":                  capChanged,
		"runs that wait for other limits come under the cap of their queue":            capLimited,
		"what executes when a queue is capped is not counted, its retry is":            capExecuting,
		"a capped queue can be paused and resumed, and a paused one capped and lifted": capPaused,
		"an isolated run of a capped queue is under the cap":                           capIsolated,
		"jobs and priorities that are new on a capped queue are under the cap":         capNewLanes,
		"a run that a cap has moved is cancelled, replaced and run again as others":    capOperated,
		"a queue that is not used yet can be capped, and is listed":                    capUnused,
		"what waits for a cap says so, also before a claim has met it":                 capExplained,
	}
}

func (f *fixture) capQueue(queue string, most int) {
	f.t.Helper()
	f.changeLimit(store.SetLimit, semaphore(store.QueueCap(queue), most))
}

// serve claims all that can start of job "mail" on the default queue, as a worker does, and
// expects so many runs that are not limited, and these limited ones.
func (f *fixture) serve(why string, plain int, limited ...store.NewRun) admittedAll {
	f.t.Helper()
	claims := f.serveAny(why, plain)
	f.wantIDs(why, claims.ids(), limited...)
	return claims
}

// serveAny is serve with any limited runs.
func (f *fixture) serveAny(why string, plain int) admittedAll {
	f.t.Helper()
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w1"), Duration: 30 * time.Second, Limit: 100}
	for _, head := range heads {
		if head.Line == 0 && head.Lane > 0 {
			request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 100})
		}
	}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != plain {
		f.t.Fatalf("%s: claimed %d runs that are not limited (%v), want %d", why, len(claimed), err, plain)
	}
	claims := admittedAll(f.admitAll(10))
	if faults, err := f.store.CheckLimits(f.ctx); err != nil || len(faults) > 0 {
		f.t.Fatalf("%s: CheckLimits found %+v, %v", why, faults, err)
	}
	return claims
}

func capExplained(t *testing.T, f *fixture) {
	f.presentAs(newWorker("w"), 1, nil)
	f.declareLimits(semaphore("tenant", 5))
	name := store.QueueCap(store.DefaultQueue)
	runs := []store.NewRun{newRun(), newRun(), newRun(limited("tenant=a")), newRun(func(r *store.NewRun) { r.After = time.Minute })}
	f.capQueue(store.DefaultQueue, 1)
	f.enqueue(runs[0])
	first := f.serve("the place", 0, runs[0])
	f.enqueue(runs[1:]...)
	for i, want := range []string{"1 of 1 places are in use, by run " + runs[0].ID.String(), "1 of 1 places are in use", "1 of 1 places are in use"} {
		if limits := f.record(runs[i+1].ID).Limits; slices.Contains(limits, name) {
			t.Fatalf("a claim has met it: it has the limits %v", limits)
		}
		f.wantText(f.explain(runs[i+1].ID), "limit "+name+": "+want)
	}
	f.changeLimit(store.DrainLimit, store.Limit{Name: name})
	f.wantKinds(runs[1].ID, operate.BlockerLimitDraining)
	f.changeLimit(store.DisableLimit, store.Limit{Name: name})
	f.wantKinds(runs[1].ID)
	f.changeLimit(store.ResumeLimit, store.Limit{Name: name})
	first.end(success())
	f.wantKinds(runs[1].ID)
	f.wantKinds(runs[2].ID)
	f.wantKinds(runs[3].ID, operate.BlockerNotDue)
	f.serve("the next", 0, runs[1])
}

func capPending(t *testing.T, f *fixture) {
	runs := newRuns(5)
	f.enqueue(runs[:4]...)
	f.capQueue(store.DefaultQueue, 2)
	first := f.serve("two of four", 0, runs[0], runs[1])
	f.wantGate("two wait", store.QueueCap(store.DefaultQueue), "", 2, 2)
	f.enqueue(runs[4])
	f.serve("full", 0)
	f.wantGate("three wait", store.QueueCap(store.DefaultQueue), "", 2, 3)
	if queues := f.queues(); len(queues) != 1 || queues[0].Paused || queues[0].MaxConcurrent == nil || *queues[0].MaxConcurrent != 2 {
		t.Errorf("queues %+v, want one that is not paused and has a cap of 2", queues)
	}
	if pending, _ := f.waiting(store.DefaultQueue); pending.N != 3 {
		t.Errorf("%+v wait, want 3", pending)
	}
	f.advance(time.Millisecond)
	first.end(store.Outcome{Kind: store.Failure, Error: "later"})
	first = f.serve("those that failed come back behind", 0, runs[2], runs[3])
	first.end(success())
	first = f.serve("in the order of their due instants", 0, runs[4], runs[0])
	first.end(success())
	f.serve("the last", 0, runs[1]).end(success())
	f.wantGate("at the end", store.QueueCap(store.DefaultQueue), "", 0, 0)
	if counts := f.counts(); counts[store.Succeeded] != 5 {
		t.Errorf("counts %v, want 5 succeeded", counts)
	}
}

func capChanged(t *testing.T, f *fixture) {
	runs := newRuns(8)
	f.enqueue(runs[:6]...)
	capped := semaphore(store.QueueCap(store.DefaultQueue), 1)
	f.capQueue(store.DefaultQueue, 1)
	first := f.serve("one", 0, runs[0])
	f.capQueue(store.DefaultQueue, 3)
	second := f.serve("raised", 0, runs[1], runs[2])
	f.capQueue(store.DefaultQueue, 1)
	first.end(success())
	f.serve("lowered: two execute", 0)
	f.changeLimit(store.DisableLimit, capped)
	f.enqueue(runs[6])
	third := f.serve("lifted: those in the line of the cap are admitted, new ones are as on any queue", 1, runs[3], runs[4], runs[5])
	if queues := f.queues(); queues[0].MaxConcurrent != nil {
		t.Errorf("lifted: %+v", queues[0])
	}
	f.capQueue(store.DefaultQueue, 2)
	f.enqueue(runs[7])
	if queues := f.queues(); queues[0].MaxConcurrent == nil || *queues[0].MaxConcurrent != 2 {
		t.Errorf("set again: %+v", queues[0])
	}
	f.serve("set again: five execute under it", 0)
	second.end(success())
	f.serve("three execute", 0)
	third.end(success())
	f.serve("none executes", 0, runs[7])
	f.changeLimit(store.DrainLimit, capped)
	if queues := f.queues(); queues[0].MaxConcurrent == nil {
		t.Error("a cap that drains is listed as none")
	}
}

func capLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	limitedRuns, plain := newRuns(5, limited("api")), newRuns(2)
	heavy := newRun(limited("api*2"))
	f.enqueue(limitedRuns...)
	f.enqueue(plain...)
	f.enqueue(heavy)
	f.capQueue(store.DefaultQueue, 2)
	f.command(store.CancelRuns, limitedRuns[4].ID)
	rest := append(append(limitedRuns[:4:4], plain...), heavy)
	claims := f.serveAny("the first", 0)
	f.command(store.CancelRuns, limitedRuns[3].ID) // it waits in one line or the other
	rest = removed(rest, []store.RunID{limitedRuns[3].ID})
	for {
		got := claims.ids()
		if len(got) == 0 || len(got) > 2 {
			t.Fatalf("%d started, %d are left", len(got), len(rest))
		}
		f.wantGate("while they execute", store.QueueCap(store.DefaultQueue), "", len(got), int(f.gate(store.QueueCap(store.DefaultQueue), "").Waiting.N))
		f.serve("full", 0)
		if rest = removed(rest, got); len(rest) == 0 {
			break
		}
		claims.end(success())
		claims = f.serveAny("the next", 0)
	}
	claims.end(success())
	f.wantGate("at the end", store.QueueCap(store.DefaultQueue), "", 0, 0)
	f.wantGate("at the end", "api", "", 0, 0)
}

// removed is the runs without some of them.
func removed(runs []store.NewRun, ids []store.RunID) (rest []store.NewRun) {
	gone := map[store.RunID]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	for _, run := range runs {
		if !gone[run.ID] {
			rest = append(rest, run)
		}
	}
	return rest
}

func capExecuting(t *testing.T, f *fixture) {
	runs := newRuns(3)
	f.enqueue(runs...)
	worker := newWorker("w2")
	claim, first := f.claim(worker, 1)
	f.capQueue(store.DefaultQueue, 1)
	second := f.serve("one beside the one that executed already", 0, runs[1])
	f.advance(time.Millisecond)
	f.settle(all(claim, worker, first, store.Outcome{Kind: store.Failure, Error: "again"}))
	f.serve("the retry waits", 0)
	second.end(success())
	third := f.serve("one at a time", 0, runs[2])
	f.serve("the retry waits still", 0)
	third.end(success())
	f.serve("the retry", 0, runs[0])
	if attempt := f.record(runs[0].ID).Attempt; attempt != 2 {
		t.Errorf("attempt %d, want 2", attempt)
	}
}

func capPaused(t *testing.T, f *fixture) {
	runs := newRuns(4)
	f.enqueue(runs[:3]...)
	f.capQueue(store.DefaultQueue, 1)
	first := f.serve("one", 0, runs[0])
	f.setQueue(store.DefaultQueue, store.PauseQueue)
	f.enqueue(runs[3])
	first.end(success())
	f.serve("paused", 0)
	if queues := f.queues(); !queues[0].Paused || queues[0].MaxConcurrent == nil {
		t.Errorf("paused: %+v", queues[0])
	}
	f.changeLimit(store.DisableLimit, semaphore(store.QueueCap(store.DefaultQueue), 1))
	f.serve("paused, without a cap", 0)
	if queues := f.queues(); !queues[0].Paused || queues[0].MaxConcurrent != nil {
		t.Errorf("lifted: %+v", queues[0])
	}
	f.capQueue(store.DefaultQueue, 2)
	f.serve("paused, capped again", 0)
	f.setQueue(store.DefaultQueue, store.ResumeQueue)
	if queues := f.queues(); queues[0].Paused || queues[0].MaxConcurrent == nil {
		t.Errorf("resumed: %+v", queues[0])
	}
	second := f.serve("two", 0, runs[1], runs[2])
	f.setQueue(store.DefaultQueue, store.ResumeQueue)
	second.end(success())
	f.serve("the last", 0, runs[3])
}

func capIsolated(t *testing.T, f *fixture) {
	isolated, other := newRun(), newRun()
	f.isolate(isolated)
	f.capQueue(store.DefaultQueue, 1)
	f.enqueue(other)
	first := f.serve("the other", 0, other)
	ask := func() []store.ClaimedRun {
		heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, head := range heads {
			request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w2"), Duration: time.Minute, Limit: 1, Alone: true}
			switch {
			case head.Line < 0:
				request.Admissions, request.Lanes = []store.Admission{{Line: head.Line, Take: 10}}, []store.LaneID{head.Line}
			case head.Lane < 0:
				request.Steps = []store.Step{{Lane: head.Lane, Take: 1}}
			default:
				continue
			}
			claimed, err := f.store.Claim(f.ctx, request)
			if err != nil {
				t.Fatal(err)
			}
			if len(claimed) > 0 {
				return claimed
			}
		}
		return nil
	}
	for range 3 {
		if claimed := ask(); len(claimed) > 0 {
			t.Fatalf("claimed %+v beside the other", claimed)
		}
	}
	first.end(success())
	f.serve("not by a claim of others", 0)
	f.advance(2 * time.Second) // places are kept for the lane
	claimed := ask()
	if claimed == nil {
		claimed = ask()
	}
	if len(claimed) != 1 || claimed[0].ID != isolated.ID {
		t.Fatalf("claimed %+v, want the isolated run", claimed)
	}
	f.wantGate("it has the place", store.QueueCap(store.DefaultQueue), "", 1, 0)
}

func capNewLanes(t *testing.T, f *fixture) {
	f.capQueue(store.DefaultQueue, 1)
	low, high := newRun(), newRun(func(r *store.NewRun) { r.Priority = 3 })
	report := newRun(func(r *store.NewRun) { r.Job = "report" })
	f.enqueue(low, high, report)
	f.serve("the one of the higher priority", 0, high)
	if claimed := f.claimEvery(1, 2, 3); len(claimed) != 0 {
		t.Errorf("claimed %+v beside the cap", claimed)
	}
}

func capOperated(t *testing.T, f *fixture) {
	runs := newRuns(4)
	runs[3].Key = replacing("k")
	f.enqueue(runs...)
	f.capQueue(store.DefaultQueue, 1)
	first := f.serve("one", 0, runs[0])
	f.command(store.CancelRuns, runs[1].ID)
	f.existing(runs[3].ID, newRun(with(replacing("k")))) // it waits in the line of the cap
	first.end(success())
	f.serve("the next", 0, runs[2]).end(success())
	f.serve("the one that was replaced", 0, runs[3]).end(store.Outcome{Kind: store.Death, Error: "e"})
	f.command(store.RetryRuns, runs[3].ID)
	f.serve("retried", 0, runs[3]).end(success())
	again := newRun()
	if _, err := f.store.Rerun(f.ctx, runs[2].ID, again, "ann"); err != nil {
		t.Fatalf("Rerun: %v", err)
	}
	f.serve("again", 0, again)
}

func capUnused(t *testing.T, f *fixture) {
	f.capQueue("slow", 4)
	queues := f.queues()
	if len(queues) != 1 || queues[0].Name != "slow" || queues[0].Paused || queues[0].MaxConcurrent == nil || *queues[0].MaxConcurrent != 4 {
		t.Fatalf("queues %+v", queues)
	}
	f.changeLimit(store.DeleteLimit, semaphore(store.QueueCap("slow"), 4))
	if queues = f.queues(); len(queues) != 1 || queues[0].MaxConcurrent != nil {
		t.Errorf("deleted: %+v", queues)
	}
}
