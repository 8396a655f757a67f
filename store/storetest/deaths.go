package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func deathTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a death is kept, whatever the run dies of": deathKept,
		"a death keeps what the run was":            deathKeeps,
		"a run is stored for each death once":       deathFollowed,
		"runs of the job for deaths have none":      deathOfItself,
		"many calls store one run for each death":   deathRaces,
	}
}

// follows declares jobs of which each has another for its deaths.
func (f *fixture) follows(codes map[string]store.JobCode) {
	f.t.Helper()
	declaration := store.Declaration{Worker: newWorker("declares")}
	for name, code := range codes {
		declaration.Jobs = append(declaration.Jobs, store.JobInfo{Name: name, Queue: store.DefaultQueue, MaxAttempts: 3, Code: code})
	}
	if err := f.store.Declare(f.ctx, declaration); err != nil {
		f.t.Fatalf("Declare: %v", err)
	}
}

// deaths returns the deaths of a job.
func (f *fixture) deaths(job string) []store.DeathRecord {
	f.t.Helper()
	deaths, err := f.store.Deaths(f.ctx, []string{job, "other"}, 100)
	if err != nil {
		f.t.Fatalf("Deaths: %v", err)
	}
	return deaths
}

// wantDeaths compares of which runs there are deaths.
func (f *fixture) wantDeaths(when string, want ...store.RunID) {
	f.t.Helper()
	var got []store.RunID
	for _, death := range f.deaths("mail") {
		got = append(got, death.Run)
	}
	if !sameRuns(got, want) {
		f.t.Errorf("%s: there are deaths of %v, want %v", when, got, want)
	}
}

func deathKept(_ *testing.T, f *fixture) {
	f.follows(map[string]store.JobCode{"mail": {OnDead: "after", Aliases: []string{"letter"}}})
	f.declareLimits(store.Limit{Name: "customer", Kind: store.LimitSemaphore, Max: 1, WhenFull: store.FullFail})
	settled, succeeded, cancelled := newRun(), newRun(), newRun()
	f.enqueue(settled, succeeded, cancelled)
	f.ends(settled.ID, store.Death)
	f.ends(succeeded.ID, store.Success)
	f.operate(store.CancelRuns, cancelled.ID)
	f.wantDeaths("after a permanent failure, a success and a cancel", settled.ID)

	crashed := newRun(func(r *store.NewRun) { r.OnCrash = store.CrashDead })
	f.enqueue(crashed)
	f.claimOne(newWorker("crashes"))
	f.advance(time.Hour)
	f.reclaim()
	f.wantState(crashed.ID, store.Dead, "its worker crashed")
	f.wantDeaths("after a crash", settled.ID, crashed.ID)

	limited := func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "customer", Key: "7"}} }
	first, beyond := newRun(limited), newRun(limited)
	f.enqueue(first)
	f.wantAdmitted("the first", first)
	f.enqueue(beyond)
	f.wantAdmitted("beyond the places")
	f.wantState(beyond.ID, store.Dead, "its limit is full")
	f.wantDeaths("after a full limit", settled.ID, crashed.ID, beyond.ID)
}

func deathKeeps(t *testing.T, f *fixture) {
	f.follows(map[string]store.JobCode{"mail": {OnDead: "after", Aliases: []string{"letter"}}})
	run := newRun(func(r *store.NewRun) { r.Args = []byte(`{"to":"ann"}`) })
	f.enqueue(run)
	f.ends(run.ID, store.Death)
	f.operate(store.RetryRuns, run.ID)
	f.ends(run.ID, store.Death)
	f.operate(store.DeleteRuns, run.ID)
	deaths := f.deaths("mail")
	if len(deaths) != 2 || deaths[0].ID >= deaths[1].ID {
		t.Fatalf("of a run that was retried and deleted there are %+v, want two deaths", deaths)
	}
	for _, death := range deaths {
		if death.Run != run.ID || death.Job != "mail" || death.RanAs != "mail" || string(death.Args) != `{"to":"ann"}` || death.Reason != "broken" ||
			death.At.IsZero() || death.Age < 0 || death.Age > time.Hour {
			t.Errorf("%+v", death)
		}
	}
	old := newRun(func(r *store.NewRun) { r.Job = "letter" })
	f.enqueue(old)
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"letter"}})
	if err != nil || len(heads) != 1 {
		t.Fatalf("Heads: %+v, %v", heads, err)
	}
	request := f.request(newWorker("w"), 1)
	request.Steps = []store.Step{{Lane: heads[0].Lane, Take: 1}}
	if _, err := f.store.Claim(f.ctx, request); err != nil {
		t.Fatalf("Claim: %v", err)
	}
	f.settle(one(request.Claim, request.Worker, old.ID, store.Outcome{Kind: store.Death, Error: "broken"}))
	if deaths = f.deaths("mail"); len(deaths) != 3 || deaths[2].Job != "mail" || deaths[2].RanAs != "letter" {
		t.Errorf("of a run with an earlier name of the job: %+v", deaths)
	}
}

func deathFollowed(t *testing.T, f *fixture) {
	f.follows(map[string]store.JobCode{"mail": {OnDead: "after"}})
	run, other := newRun(), newRun()
	f.enqueue(run, other)
	f.ends(run.ID, store.Death)
	f.ends(other.ID, store.Death)
	death := f.deaths("mail")[0]
	after := newRun(func(r *store.NewRun) { r.Job = "after" })
	for again, want := range []int{1, 0} {
		stored, err := f.store.EnqueueForDeaths(f.ctx, []store.DeathRun{{Death: death.ID, Run: after}})
		if err != nil || stored != want {
			t.Errorf("call %d stored %d, %v", again, stored, err)
		}
	}
	f.wantState(after.ID, store.Pending, "a run died")
	f.wantDeaths("after the run for the other", other.ID)
	refused := newRun(func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "unknown"}} })
	if _, err := f.store.EnqueueForDeaths(f.ctx, []store.DeathRun{{Death: f.deaths("mail")[0].ID, Run: refused}}); err == nil {
		t.Error("a run with an unknown limit was stored")
	}
	f.wantDeaths("after a run that was refused", other.ID)
}

func deathOfItself(_ *testing.T, f *fixture) {
	f.follows(map[string]store.JobCode{"mail": {OnDead: "mail"}})
	run := newRun()
	f.enqueue(run)
	f.ends(run.ID, store.Death)
	f.wantDeaths("the job is its own")
	f.follows(map[string]store.JobCode{"letter": {OnDead: "mail"}})
	again := newRun()
	f.enqueue(again)
	f.ends(again.ID, store.Death)
	f.wantDeaths("the job has none")
}

func deathRaces(t *testing.T, f *fixture) {
	const many = 50
	f.follows(map[string]store.JobCode{"mail": {OnDead: "after"}})
	runs := newRuns(many)
	f.enqueue(runs...)
	worker := newWorker("w")
	claim, claimed := f.claim(worker, many)
	f.settle(all(claim, worker, claimed, store.Outcome{Kind: store.Death, Error: "broken"}))
	var stored atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for end := time.Now().Add(patience); time.Now().Before(end); {
				deaths, err := f.store.Deaths(f.ctx, []string{"mail"}, 7)
				if err != nil || len(deaths) == 0 {
					return
				}
				var after []store.DeathRun
				for _, death := range deaths {
					after = append(after, store.DeathRun{Death: death.ID, Run: newRun(func(r *store.NewRun) { r.Job = "after" })})
				}
				n, err := f.store.EnqueueForDeaths(context.WithoutCancel(f.ctx), after)
				if err != nil {
					t.Errorf("EnqueueForDeaths: %v", err)
				}
				stored.Add(int64(n))
			}
		})
	}
	callers.Wait()
	counts, err := f.store.Counts(f.ctx)
	if err != nil || stored.Load() != many || counts[store.Pending].N != many {
		t.Errorf("%d runs were stored for %d deaths; counts %v, %v", stored.Load(), many, counts, err)
	}
}
