package storetest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// asMuchAsThereIs asks for as many as a number can say.
func asMuchAsThereIs(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRuns(5)...)
	request := f.request(worker, math.MaxInt)
	request.Steps = append(request.Steps, store.Step{Lane: request.Steps[0].Lane, Skip: math.MaxInt, Take: math.MaxInt},
		store.Step{Lane: request.Steps[0].Lane, Skip: 5, Take: math.MaxInt})
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 5 {
		t.Errorf("claimed %d (%v), want all five", len(claimed), err)
	}
	settlement := all(request.Claim, worker, claimed, success())
	settlement.Claimed = math.MaxInt
	f.settle(settlement)
	limit := semaphore("api", store.MaxLimit)
	f.declareLimits(limit)
	f.enqueue(newRuns(2, limited("api"))...)
	admission := f.admission(worker, math.MaxInt)
	if claimed, err = f.store.Claim(f.ctx, admission); err != nil || len(claimed) != 2 {
		t.Errorf("admitted %d (%v), want both", len(claimed), err)
	}
	f.advance(time.Minute)
	done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: store.MostCrashes, Limit: math.MaxInt, Runs: math.MaxInt, Ahead: longest})
	if err != nil || len(done.Runs) != 2 || !done.Soon {
		t.Errorf("reclaimed %+v (%v), want both", done, err)
	}
	f.declare(newSchedule("hourly"))
	if made := f.materialize(math.MaxInt, in(time.Hour)); made.Due != 1 {
		t.Errorf("materialized %+v, want one evaluated", made)
	}
	swept := f.sweep(store.SweepRequest{By: uuid.New(), Retention: longest, RetentionDead: longest, RetentionAudit: longest, Limit: math.MaxInt})
	if swept.Deleted != 0 {
		t.Errorf("swept %+v, want nothing deleted", swept)
	}
	if points := f.series(store.SeriesQuery{Span: store.Minute, Within: longest}); len(points) != 0 {
		t.Errorf("series %+v, want none", points)
	}
	if past, err := f.store.ScheduleHistory(f.ctx, "hourly", math.MaxInt); err != nil || len(past) > 1 {
		t.Errorf("history %+v, %v", past, err)
	}
	for _, most := range []int{math.MaxInt, math.MinInt, -1} {
		_, err := f.store.Runs(f.ctx, store.Filter{Limit: most})
		invalid(t, "Runs", err)
		_, err = f.store.Changes(f.ctx, store.ChangeFilter{Limit: most})
		invalid(t, "Changes", err)
		_, err = f.store.Problems(f.ctx, store.ProblemFilter{Limit: most})
		invalid(t, "Problems", err)
	}
}

// asLongAsThereIs takes what lasts as long as a duration can say.
func asLongAsThereIs(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.enqueue(newRun(func(r *store.NewRun) { r.Timeout = store.MaxDelay }))
	request := f.request(worker, 1)
	request.Duration = longest
	if claimed, err := f.store.Claim(f.ctx, request); err != nil || len(claimed) != 1 || claimed[0].Timeout != store.MaxDelay {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{request.Claim}, longest)
	if err != nil || len(renewed) != 1 {
		t.Errorf("renewed %v, %v", renewed, err)
	}
	f.advance(24 * time.Hour)
	if done := f.reclaim(); len(done.Runs) != 0 || done.Soon {
		t.Errorf("reclaimed %+v, want the lease to stand", done)
	}
	gone := request
	gone.Claim = lease.NewClaimID()
	f.handBack(gone)
	f.declareLimits(semaphore("api", 1))
	grant := f.use(store.LimitRequest{Usage: store.UsageAcquire, Limit: "api", Owner: "me", For: store.MaxDelay})
	if !grant.Granted || grant.Expires < store.MaxDelay-time.Minute {
		t.Errorf("granted %+v, want a place for a century", grant)
	}
	if grant = f.use(store.LimitRequest{Usage: store.UsageAcquire, Limit: "api", Owner: "you", For: time.Second}); grant.Granted {
		t.Errorf("granted %+v, want the place taken", grant)
	}
	f.declares(newWorker("w2"), longest, newSchedule("hourly"))
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: worker, Jobs: []store.JobInfo{{Name: "mail", Queue: "default", MaxAttempts: 1,
		Timeout: store.Duration(store.MaxDelay), Retention: store.Duration(longest)}}}); err != nil {
		t.Errorf("Declare: %v", err)
	}
	f.presentAs(worker, 1, func(p *store.Presence) {
		p.Every, p.Poll, p.Resting = store.Duration(longest), store.Duration(longest), store.Duration(longest)
	})
	f.present(newWorker("w3"), 1)
	if workers := f.workers(); len(workers) != 2 || workers[0].State != store.Working {
		t.Errorf("workers %+v, want two that work", workers)
	}
	if survey := f.survey(); survey.ExpiredLeases.N != 0 {
		t.Errorf("survey %+v, want no expired lease", survey)
	}
	f.wantReadable()
	if locks, has := f.store.(interface{ Locks() lock.Locks }); has {
		longLock(t, f, locks.Locks())
	}
}

func longLock(t *testing.T, f *fixture, locks lock.Locks) {
	t.Helper()
	request := lock.Request{Name: "name", Slots: 1, Claim: lease.NewClaimID(), Duration: longest}
	if answer, err := locks.Acquire(f.ctx, request); err != nil || !answer.Granted {
		t.Fatalf("Acquire: %+v, %v", answer, err)
	}
	if renewed, err := locks.Renew(f.ctx, []lease.ClaimID{request.Claim}, longest); err != nil || len(renewed) != 1 {
		t.Errorf("Renew: %v, %v", renewed, err)
	}
	request.Claim = lease.NewClaimID()
	if answer, err := locks.Acquire(f.ctx, request); err != nil || answer.Granted || answer.FreeIn < longest/2 {
		t.Errorf("Acquire: %+v, %v, want it held for centuries", answer, err)
	}
	for _, most := range []int{math.MaxInt, 1} {
		if list, err := locks.ListLocks(f.ctx, "", most); err != nil || len(list) != 1 || list[0].Expired {
			t.Errorf("ListLocks: %+v, %v", list, err)
		}
	}
	if list, err := locks.ListForced(f.ctx, math.MaxInt); err != nil || len(list) != 0 {
		t.Errorf("ListForced: %+v, %v", list, err)
	}
}

// backwards asks for less than nothing.
func backwards(t *testing.T, f *fixture) {
	const shortest = time.Duration(math.MinInt64)
	worker := newWorker("w1")
	f.enqueue(newRuns(3)...)
	for _, d := range []time.Duration{shortest, -1, 0} {
		for _, after := range []time.Duration{shortest, -1} {
			claim, run := f.claimOne(worker)
			f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Snoozed, After: after, Took: d}))
			if due := f.record(run.ID).DueAt; due.Before(f.now().Add(-time.Hour)) || due.After(f.now()) {
				t.Errorf("snoozed for %v: due at %v", after, due)
			}
		}
		if done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: math.MinInt, Runs: math.MinInt, Ahead: d}); err != nil || len(done.Runs) != 0 {
			t.Errorf("reclaimed %+v, %v, want nothing", done, err)
		}
		swept := f.sweep(store.SweepRequest{By: uuid.New(), Retention: d, RetentionDead: d, RetentionAudit: d, Limit: 100})
		if swept.Deleted != 0 {
			t.Errorf("swept %+v, want nothing: a retention of zero or less is forever", swept)
		}
		for _, usage := range []store.LimitUsage{store.UsageAcquire, store.UsagePenalize} {
			f.declareLimits(semaphore("api", 1))
			request := store.LimitRequest{Usage: usage, Limit: "api", For: d}
			if usage == store.UsageAcquire {
				request.Owner = "me"
			}
			_, err := f.store.UseLimit(f.ctx, request)
			invalid(t, "UseLimit", err)
		}
		for name, change := range map[string]func(*store.NewRun){
			"timeout": func(r *store.NewRun) { r.Timeout = min(d, -1) }, "after": func(r *store.NewRun) { r.After = min(d, -1) },
			"attempts": func(r *store.NewRun) { r.MaxAttempts = math.MinInt }, "priority": func(r *store.NewRun) { r.Priority = math.MinInt },
			"weight": func(r *store.NewRun) { r.Limits = []store.LimitUse{{Limit: "api", Weight: math.MinInt}} },
		} {
			if _, err := f.store.Enqueue(f.ctx, newRun(change)); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if locks, has := f.store.(interface{ Locks() lock.Locks }); has {
			_, err := locks.Locks().Acquire(f.ctx, lock.Request{Name: "name", Slots: math.MinInt, Claim: lease.NewClaimID(), Duration: d})
			if !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("Acquire: %v, want ErrInvalid", err)
			}
		}
	}
}
