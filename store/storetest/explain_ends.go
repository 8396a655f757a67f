package storetest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func explainExpiredLease(_ *testing.T, f *fixture) {
	f.enqueue(newRun())
	_, run := f.claimOne(newWorker("web-7"))
	f.advance(31 * time.Second)
	f.wantText(f.wantKinds(run.ID, operate.BlockerLeaseExpired), "the lease of web-7 expired", "no worker is alive")
	f.presentAs(newWorker("web-8"), 1, nil)
	f.wantText(f.wantKinds(run.ID, operate.BlockerLeaseExpired), "another worker will requeue the run")
	f.reclaim()
	f.starts(run.ID)
}

func explainResting(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	_, run := f.claimOne(newWorker("web-7"))
	f.advance(31 * time.Second)
	w := newWorker("web-8")
	f.presentAs(w, 1, func(p *store.Presence) { p.Resting = store.Duration(10 * time.Second) })
	if e := f.wantKinds(run.ID, operate.BlockerLeaseExpired, operate.BlockerTakeoverPause); e.Blockers[1].EndsAt == nil {
		t.Errorf("explained %+v", e)
	}
	f.presentAs(w, 2, nil)
	f.wantKinds(run.ID, operate.BlockerLeaseExpired)
}

func explainNoLease(_ *testing.T, f *fixture) {
	_, lost := f.strand(newWorker("w1"))
	f.presentAs(newWorker("w"), 1, nil)
	f.wantText(f.wantKinds(lost.ID, operate.BlockerNoLease), "no lease", "within 1 h")
	f.advance(2 * store.SweepPassEvery)
	f.sweep(sweeper())
	f.presentAs(newWorker("w2"), 1, nil)
	f.starts(lost.ID)
}

func explainEnded(t *testing.T, f *fixture) {
	worker := newWorker("w")
	f.presentAs(worker, 1, func(p *store.Presence) {
		p.Retention, p.RetentionDead = store.Duration(24*time.Hour), store.Duration(-1)
	})
	f.enqueue(newRuns(3)...)
	ended := func(outcome store.Outcome) store.RunID {
		claim, run := f.claimOne(worker)
		f.settle(one(claim, worker, run.ID, outcome))
		return run.ID
	}
	e := f.wantKinds(ended(success()), operate.BlockerEnded, operate.BlockerKept)
	if f.wantText(e, "succeeded", "by the retention of the workers (1 d)"); e.Past == "" || e.Blockers[1].EndsAt == nil {
		t.Errorf("explained %+v", e)
	}
	dead := ended(store.Outcome{Kind: store.Death, Error: "smtp 550"})
	f.wantText(f.wantKinds(dead, operate.BlockerEnded, operate.BlockerKept), "dead: smtp 550", "it is kept forever")
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: worker, Jobs: []store.JobInfo{{Name: "mail", Queue: "default", MaxAttempts: 1, Retention: store.Duration(time.Hour)}}}); err != nil {
		t.Fatal(err)
	}
	f.wantText(f.explain(dead), "by the retention of job mail (1 h)")
	cancelled := f.pendingBut(dead)[0]
	f.operate(store.CancelRuns, cancelled)
	if e = f.wantKinds(cancelled, operate.BlockerEnded, operate.BlockerKept); e.Blockers[0].By == nil || *e.Blockers[0].By != "ann" {
		t.Errorf("explained %+v", e)
	}
	f.wantText(e, "cancelled: "+reason, "(ann, ")
}

// factsOfSuccess wants the success as the last attempt of a run that has failed before.
func factsOfSuccess(t *testing.T, f *fixture) {
	worker := newWorker("w")
	f.enqueue(newRun())
	for _, outcome := range []store.Outcome{{Kind: store.Failure, Error: "smtp 550"}, success()} {
		claim, run := f.claimOne(worker)
		f.settle(one(claim, worker, run.ID, outcome))
		facts, err := f.store.Facts(f.ctx, run.ID)
		if err != nil || facts.Run == nil || len(facts.Run.Attempts) != 1 || facts.Run.Attempts[0].Outcome != outcome.Kind {
			t.Errorf("after a %v: %+v, %v", outcome.Kind, facts.Run, err)
		}
	}
}

// explainKeyGivenUp has a run lose its key to a newer one while it executes. It needs none
// for its next attempt: nothing is said of the key.
func explainKeyGivenUp(t *testing.T, f *fixture) {
	replacing := func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} }
	worker, first := newWorker("w"), newRun(replacing)
	f.enqueue(first)
	claim, _ := f.claimOne(worker)
	f.enqueue(newRun(replacing))
	f.settle(one(claim, worker, first.ID, store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour}))
	if facts, err := f.store.Facts(f.ctx, first.ID); err != nil || facts.Run.State != store.Pending || facts.KeyHolder != nil {
		t.Errorf("of a pending run: %+v, key holder %v, %v", facts.Run, facts.KeyHolder, err)
	}
}

func explainKeyHeld(_ *testing.T, f *fixture) {
	first, second := keyed("k", 0), keyed("k", 0)
	f.enqueue(first)
	f.operate(store.CancelRuns, first.ID)
	f.wantKinds(first.ID, operate.BlockerEnded)
	f.enqueue(second)
	f.wantText(f.wantKinds(first.ID, operate.BlockerEnded, operate.BlockerKeyHeld), "run "+second.ID.String()+" holds its unique key")
	f.operate(store.CancelRuns, second.ID)
	f.wantKinds(first.ID, operate.BlockerEnded)
}

func explainDeleted(t *testing.T, f *fixture) {
	run, other := newRun(), newRun()
	ahead := time.Now().Add(5 * time.Second).UnixMilli() // the clock of who enqueues it
	copy(other.ID[:6], binary.BigEndian.AppendUint64(nil, uint64(ahead))[2:])
	f.enqueue(run, other)
	f.operate(store.DeleteRuns, run.ID)
	e := f.wantKinds(run.ID, operate.BlockerDeleted)
	if b := e.Blockers[0]; e.State != nil || b.By == nil || *b.By != "ann" || b.Since == nil || e.Past == "" {
		t.Errorf("explained %+v", e)
	}
	_, err := f.store.Operate(f.ctx, store.RunCommand{Action: store.DeleteRuns, Runs: []store.RunID{other.ID}, By: "bob", Bulk: &store.BulkChange{ID: uuid.New()}})
	if err != nil {
		t.Fatal(err)
	}
	f.wantText(f.wantKinds(other.ID, operate.BlockerUnknown), "it may be one of 1 that bob deleted by a filter")
}

func explainAbsent(_ *testing.T, f *fixture) {
	id := store.NewRunID()
	f.wantKinds(id, operate.BlockerUnknown)
	f.wantKinds(uuid.New(), operate.BlockerUnknown)
	f.presentAs(newWorker("w"), 1, func(p *store.Presence) { p.Retention = store.Duration(time.Hour) })
	f.wantKinds(id, operate.BlockerUnknown)
	stamp := f.now().Add(-3 * time.Hour).UnixMilli()
	for i := range 6 {
		id[i] = byte(stamp >> (8 * (5 - i)))
	}
	f.wantText(f.wantKinds(id, operate.BlockerAgedOut), "according to its id, it was created 3 h ", "kept for 1 h")
}

func problemTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"dead runs are listed, the newest death first":                    problemsListed,
		"an acknowledged run stays dead and leaves the open problems":     acknowledged,
		"an acknowledgement is audited once, and of others it is refused": acknowledgedOnce,
		"a retried run that dies again is an open problem":                acknowledgedAgain,
		"a series is of one queue or job where one is named":              seriesOfOne,
		"runs that wait for limits wait in a survey, and do not run":      surveyLimited,
		"leases that were left behind are counted in a survey":            surveyExpired,
		"a limit says since when the oldest of its waiters has been due":  oldestWaiter,
	}
}

func (f *fixture) problems(filter store.ProblemFilter) []store.Problem {
	f.t.Helper()
	problems, err := f.store.Problems(f.ctx, filter)
	if err != nil {
		f.t.Fatalf("Problems: %v", err)
	}
	return problems
}

// die ends a run of the job mail dead.
func (f *fixture) die(why string) store.RunID {
	f.t.Helper()
	worker := newWorker("w")
	claim, run := f.claimOne(worker)
	f.settle(one(claim, worker, run.ID, store.Outcome{Kind: store.Death, Error: why}))
	return run.ID
}

func problemsListed(t *testing.T, f *fixture) {
	if list := f.problems(store.ProblemFilter{}); list == nil || len(list) != 0 {
		t.Errorf("problems %v", list)
	}
	runs := newRuns(3)
	f.enqueue(runs...)
	f.operate(store.CancelRuns, runs[2].ID)
	first := f.die("one")
	f.advance(time.Minute)
	second := f.die("two")
	list := f.problems(store.ProblemFilter{})
	if len(list) != 2 || list[0].Run != second || list[1].Run != first || list[0].Reason != "two" || list[0].Job != "mail" || list[0].Queue != store.DefaultQueue ||
		list[0].EndedAt.Sub(f.now()).Abs() > 30*time.Second || list[0].AcknowledgedAt != nil {
		t.Errorf("problems %+v", list)
	}
	for _, c := range []struct {
		filter store.ProblemFilter
		n      int
	}{
		{store.ProblemFilter{Limit: 1}, 1}, {store.ProblemFilter{Jobs: []string{"fax"}}, 0}, {store.ProblemFilter{Jobs: []string{"fax", "mail"}}, 2},
		{store.ProblemFilter{Queues: []string{"slow"}}, 0}, {store.ProblemFilter{Queues: []string{store.DefaultQueue}}, 2},
		{store.ProblemFilter{Since: f.now().Add(-30 * time.Second)}, 1}, {store.ProblemFilter{Scope: store.AcknowledgedProblems}, 0},
	} {
		if list := f.problems(c.filter); len(list) != c.n {
			t.Errorf("%+v: %d problems, want %d", c.filter, len(list), c.n)
		}
	}
	for _, filter := range []store.ProblemFilter{{Limit: -1}, {Limit: store.MaxProblems + 1}, {Scope: 7}, {Jobs: []string{"\x00"}}} {
		if _, err := f.store.Problems(f.ctx, filter); err == nil {
			t.Errorf("%+v is not refused", filter)
		}
	}
}

func acknowledged(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	first, second := f.die("one"), f.die("two")
	f.did(store.AcknowledgeRuns, first, store.RunChanged, store.Dead)
	if list := f.problems(store.ProblemFilter{}); len(list) != 1 || list[0].Run != second {
		t.Errorf("open: %+v", list)
	}
	list := f.problems(store.ProblemFilter{Scope: store.AcknowledgedProblems})
	if len(list) != 1 || list[0].Run != first || list[0].AcknowledgedBy != "ann" || list[0].AcknowledgedAt == nil || list[0].AcknowledgedAt.Sub(f.now()).Abs() > time.Minute {
		t.Errorf("acknowledged: %+v", list)
	}
	if record := f.record(first); record.State != store.Dead || record.Error == nil || *record.Error != "one" {
		t.Errorf("the run is %+v", record)
	}
	if n := f.counts()[store.Dead]; n != 2 {
		t.Errorf("%d are dead, want 2", n)
	}
}

func acknowledgedOnce(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	id := f.die("one")
	f.did(store.AcknowledgeRuns, id, store.RunChanged, store.Dead)
	f.did(store.AcknowledgeRuns, id, store.RunUnchanged, store.Dead)
	if n := f.audited(id, store.AcknowledgeRuns); n != 1 {
		t.Errorf("audited %d times", n)
	}
	pending := f.pendingBut(id)[0]
	f.did(store.AcknowledgeRuns, pending, store.RunConflict, store.Pending)
	f.did(store.CancelRuns, pending, store.RunChanged, store.Cancelled)
	f.did(store.AcknowledgeRuns, pending, store.RunConflict, store.Cancelled)
	f.did(store.AcknowledgeRuns, store.NewRunID(), store.RunNotFound, 0)
	if n := f.audited(pending, store.AcknowledgeRuns); n != 0 {
		t.Errorf("audited %d times", n)
	}
}

func acknowledgedAgain(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	id := f.die("one")
	f.operate(store.AcknowledgeRuns, id)
	f.did(store.RetryRuns, id, store.RunChanged, store.Pending)
	if again := f.die("two"); again != id {
		t.Fatalf("another run was claimed")
	}
	if list := f.problems(store.ProblemFilter{}); len(list) != 1 || list[0].Reason != "two" || list[0].AcknowledgedAt != nil {
		t.Errorf("open: %+v", list)
	}
}

func seriesOfOne(t *testing.T, f *fixture) {
	fax, slow := did(20), did(300)
	fax.Job, slow.Queue = "fax", "slow"
	f.present(newWorker("w"), 1, did(1), fax, slow)
	for query, want := range map[store.SeriesQuery]int64{
		{Queue: store.DefaultQueue}: 21, {Job: "mail"}: 301, {Queue: "slow", Job: "mail"}: 300, {Queue: "slow", Job: "fax"}: 0, {}: 321,
	} {
		query.Span, query.Scope, query.Within = store.Quarter, store.EachLane, time.Hour
		var sum store.Tally
		points := f.series(query)
		for i := range points {
			sum.Add(&points[i].Tally)
		}
		if sum.Succeeded != want {
			t.Errorf("%+v: %d succeeded, want %d", query, sum.Succeeded, want)
		}
	}
	if _, err := f.store.Series(f.ctx, store.SeriesQuery{Span: store.Quarter, Within: time.Hour, Job: "mail"}); err == nil {
		t.Errorf("a job of all lanes together is not refused")
	}
}

func surveyLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(3, limited("api"))
	f.enqueue(runs...)
	f.enqueue(newRun(limited("api"), func(r *store.NewRun) { r.After = time.Hour }), newRun())
	f.admit(1)
	survey := f.survey()
	if len(survey.Lanes) != 1 {
		t.Fatalf("survey %+v", survey)
	}
	if lane := survey.Lanes[0]; lane.Pending.N != 4 || lane.Due.N != 3 || lane.Running.N != 1 || lane.OldestDue == nil || lane.Isolated.N != 0 {
		t.Errorf("survey %+v, want 4 pending, 3 due, 1 running", lane)
	}
}

func surveyExpired(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	for range 2 {
		f.claimOne(newWorker("w"))
	}
	f.advance(80 * time.Second)
	if n := f.survey().ExpiredLeases; n.N != 0 {
		t.Errorf("%+v leases were left behind", n)
	}
	f.advance(20 * time.Second)
	if n := f.survey().ExpiredLeases; n.N != 2 {
		t.Errorf("%+v leases were left behind, want 2", n)
	}
	f.reclaim()
	if n := f.survey().ExpiredLeases; n.N != 0 {
		t.Errorf("%+v leases were left behind", n)
	}
}

func oldestWaiter(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	if at := f.limit("api").OldestDue; at != nil {
		t.Errorf("oldest %v", at)
	}
	f.enqueue(newRuns(2, limited("api=a"))...)
	f.advance(time.Minute)
	f.enqueue(newRun(limited("api=b")))
	if at := f.limit("api").OldestDue; at == nil || f.now().Sub(*at) < time.Minute || f.now().Sub(*at) > 2*time.Minute {
		t.Errorf("oldest %v", at)
	}
}

func explainFull(_ *testing.T, f *fixture) {
	w := newWorker("web-7")
	f.presentAs(w, 1, func(p *store.Presence) { p.Executing = 10 })
	run := newRun()
	f.enqueue(run)
	f.wantText(f.wantKinds(run.ID, operate.BlockerWorkersFull), "10 of 10")
	long := store.NewRunID()
	f.presentAs(w, 2, func(p *store.Presence) {
		p.Executing, p.Caps = 4, []store.OwnCap{{Queue: "slow", Max: 1, Executing: 0}, {Queue: store.DefaultQueue, Max: 2, Executing: 2}}
		p.Longest = &store.LongExecution{Run: long, Job: "report", Queue: store.DefaultQueue, For: store.Duration(time.Hour)}
	})
	f.wantText(f.wantKinds(run.ID, operate.BlockerWorkersFull), "4 of 10", "of queue "+store.DefaultQueue+" 2 of the 2", "run "+long.String()+" of job report on web-7, for 1 h")
	f.presentAs(w, 3, func(p *store.Presence) {
		p.Executing, p.Caps = 4, []store.OwnCap{{Queue: store.DefaultQueue, Max: 2, Executing: 1}}
	})
	f.starts(run.ID)
}

func explainAlias(t *testing.T, f *fixture) {
	run := newRun()
	f.enqueue(run)
	declared := []store.JobInfo{{Name: "letter", Queue: "default", MaxAttempts: 1, Code: store.JobCode{Aliases: []string{"post", "mail"}}}}
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("declares"), Jobs: declared}); err != nil {
		t.Fatal(err)
	}
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "it is an earlier name of job letter")
	w := newWorker("w")
	f.presentAs(w, 1, func(p *store.Presence) { p.Jobs = []string{"fax"} })
	f.wantText(f.wantKinds(run.ID, operate.BlockerNoWorker), "do not have job letter with this earlier name: w")
	f.presentAs(w, 2, func(p *store.Presence) { p.Jobs = []string{"letter", "post", "mail"} })
	e := f.explain(run.ID)
	if f.wantText(e, "as job letter: mail is an earlier name of it"); e.ServedAs == nil || *e.ServedAs != "letter" {
		t.Errorf("served as %v", e.ServedAs)
	}
	f.starts(run.ID)
	f.wantText(f.explain(run.ID), "executes it", "as job letter")
	declared = append(declared, store.JobInfo{Name: "mail", Queue: "default", MaxAttempts: 1})
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("declares"), Jobs: declared}); err != nil {
		t.Fatal(err)
	}
	if e := f.explain(run.ID); e.ServedAs != nil {
		t.Errorf("a job of its own name is served as %s", *e.ServedAs)
	}
}
