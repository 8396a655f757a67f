package storetest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// What limits promise, whatever the engine. Runs are of job "mail" on the default
// queue where a test says nothing else.
func limitTests() map[string]func(*testing.T, *fixture) {
	tests := map[string]func(*testing.T, *fixture){}
	for _, more := range []map[string]func(*testing.T, *fixture){
		limitPlaceTests(), limitEndTests(), limitLineTests(), limitChangeTests(), limitKindTests(), limitTermTests(), limitRandomTests(), limitCheckTests(), queueCapTests(), limitFairTests(), limitKeyTests(),
	} {
		maps.Copy(tests, more)
	}
	return tests
}

func limitPlaceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a semaphore admits as many as it has places, and the next when one ends": placesTaken,
		"a plain claim takes no limited run, and an admission no other":           twoKindsOfClaims,
		"keys that differ by case are one, others have places of their own":       limitKeys,
		"a limit is one for all jobs and queues":                                  sharedLimit,
		"a run takes as many places as it weighs, and lighter ones wait behind":   limitWeights,
		"of several limits a run gets all or none, whatever their order":          severalLimits,
		"runs with two limits in either order neither block nor exceed":           eitherOrder,
		"a claim of limited runs that is repeated gets the same runs":             admissionAgain,
		"a claim of limited runs that is repeated takes no more places":           admissionAgainWithRoom,
		"a claim of limited runs that was handed back is given nothing":           admissionHandedBack,
		"a run says its limits, also in a list":                                   limitsOfRecord,
		"an unknown limit is refused by its name, and nothing is stored":          unknownLimits,
		"a weight above what a limit has is refused":                              heavyRefused,
	}
}

// semaphore is a limit of so many places.
func semaphore(name string, places int) store.Limit {
	return store.Limit{Name: name, Kind: store.LimitSemaphore, Max: places}
}

// limited gives a run limits, each as LimitUse.String writes it.
func limited(texts ...string) func(*store.NewRun) {
	uses, err := store.ParseLimitTexts(texts)
	return func(r *store.NewRun) {
		r.Limits = uses
		if err != nil {
			r.Refuse(err)
		}
	}
}

// declare declares limits by a worker that starts now.
func (f *fixture) declareLimits(limits ...store.Limit) {
	f.t.Helper()
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("declares"), Limits: limits}); err != nil {
		f.t.Fatalf("Declare: %v", err)
	}
}

// admission requests up to n limited runs of job "mail" on some queues, isolated
// ones left out.
func (f *fixture) admission(worker store.WorkerID, n int, queues ...string) store.ClaimRequest {
	f.t.Helper()
	if len(queues) == 0 {
		queues = []string{store.DefaultQueue}
	}
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: queues, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: 30 * time.Second, Limit: n}
	for _, head := range heads {
		switch {
		case head.Line > 0:
			request.Admissions = append(request.Admissions, store.Admission{Line: head.Line, Take: n})
		case head.Line == 0 && head.Lane > 0:
			request.Lanes = append(request.Lanes, head.Lane)
		}
	}
	return request
}

// admitted is what one claim of limited runs was given.
type admitted struct {
	f      *fixture
	claim  lease.ClaimID
	worker store.WorkerID
	runs   []store.ClaimedRun
}

// admit claims up to n limited runs under a new claim.
func (f *fixture) admit(n int, queues ...string) admitted {
	f.t.Helper()
	worker := newWorker("w1")
	request := f.admission(worker, n, queues...)
	if len(request.Admissions) == 0 {
		return admitted{f: f, worker: worker}
	}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil {
		f.t.Fatalf("Claim: %v", err)
	}
	return admitted{f: f, claim: request.Claim, worker: worker, runs: claimed}
}

// admitAll claims limited runs, up to n with each claim, until a claim gets none.
func (f *fixture) admitAll(n int, queues ...string) (claims []admitted) {
	f.t.Helper()
	for {
		a := f.admit(n, queues...)
		if len(a.runs) == 0 {
			return claims
		}
		claims = append(claims, a)
	}
}

// wantAdmitted admits all that can start now, ten at a time, and expects these
// runs, in any order.
func (f *fixture) wantAdmitted(why string, runs ...store.NewRun) admittedAll {
	f.t.Helper()
	claims := admittedAll(f.admitAll(10))
	f.wantIDs(why, claims.ids(), runs...)
	return claims
}

func (f *fixture) wantIDs(why string, got []store.RunID, runs ...store.NewRun) {
	f.t.Helper()
	var want []store.RunID
	for _, run := range runs {
		want = append(want, run.ID)
	}
	name := func(id store.RunID) int { return slices.Index(want, id) }
	if len(got) != len(want) || slices.ContainsFunc(want, func(id store.RunID) bool { return !slices.Contains(got, id) }) {
		f.t.Fatalf("%s: admitted %d runs, want %d; admitted, by their place in what is wanted (-1: not wanted): %v", why, len(got), len(want), mapped(got, name))
	}
}

func mapped[A, B any](values []A, to func(A) B) []B {
	out := make([]B, len(values))
	for i := range values {
		out[i] = to(values[i])
	}
	return out
}

// admittedAll is what several claims were given.
type admittedAll []admitted

func (all admittedAll) ids() (ids []store.RunID) {
	for _, a := range all {
		for _, r := range a.runs {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// settlement ends all runs of the claim alike.
func (a admitted) settlement(outcome store.Outcome) store.Settlement {
	s := all(a.claim, a.worker, a.runs, outcome)
	s.Limited, s.Claimed = true, len(a.runs)
	return s
}

// end ends all runs of the claim alike, and expects that the writes are accepted.
func (a admitted) end(outcome store.Outcome) {
	a.f.t.Helper()
	if len(a.runs) == 0 {
		return
	}
	for i, verdict := range a.f.settle(a.settlement(outcome)) {
		if verdict != store.Applied {
			a.f.t.Fatalf("the settle of run %s was %v", a.runs[i].ID, verdict)
		}
	}
}

func (all admittedAll) end(outcome store.Outcome) {
	for _, a := range all {
		a.f.t.Helper()
		a.end(outcome)
	}
}

// gate describes one key of a limit.
func (f *fixture) gate(limit, key string) store.GateInfo {
	f.t.Helper()
	info, err := f.store.Gate(f.ctx, limit, key)
	if err != nil {
		f.t.Fatalf("Gate: %v", err)
	}
	return info
}

// wantGate expects so many places in use, and so many waiters.
func (f *fixture) wantGate(why, limit, key string, inUse, waiting int) {
	f.t.Helper()
	if info := f.gate(limit, key); info.InUse != inUse || int(info.Waiting.N) != waiting {
		f.t.Fatalf("%s: %s=%s has %d places in use and %d waiters, want %d and %d", why, limit, key, info.InUse, info.Waiting.N, inUse, waiting)
	}
}

func placesTaken(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	runs := newRuns(5, limited("api"))
	f.enqueue(runs...)
	f.wantGate("before", "api", "", 0, 5)
	first := f.wantAdmitted("three places", runs[:3]...)
	f.wantGate("full", "api", "", 3, 2)
	f.wantAdmitted("none is free")
	for i, claimed := range first[0].runs {
		if claimed.Attempt != 1 || claimed.ID != runs[i].ID {
			t.Errorf("place %d went to %+v, want attempt 1 of %s", i, claimed, runs[i].ID)
		}
	}
	if len(first) != 1 {
		t.Fatalf("three places took %d claims", len(first))
	}
	part := first[0].settlement(success())
	part.Runs, part.Last = part.Runs[1:2], false
	f.settle(part)
	f.wantGate("one is free", "api", "", 2, 2)
	second := f.wantAdmitted("one is free", runs[3])
	rest := first[0].settlement(success())
	rest.Runs = append(rest.Runs[:1:1], rest.Runs[2])
	f.settle(rest)
	third := f.wantAdmitted("two are free", runs[4])
	second.end(success())
	third.end(success())
	f.wantGate("all have ended", "api", "", 0, 0)
	f.wantAdmitted("all have ended")
	if counts := f.counts(); counts[store.Succeeded] != 5 {
		t.Errorf("counts %v, want 5 succeeded", counts)
	}
	if done := f.limit("api").Done; done != (store.LimitTally{Admitted: 5}) {
		t.Errorf("counted %+v, want 5 admitted", done)
	}
}

func twoKindsOfClaims(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	plain, with := newRuns(3), newRuns(3, limited("api"))
	f.enqueue(with[0], plain[0], plain[1], with[1], plain[2], with[2])
	if counts := f.counts(); counts[store.Pending] != 6 {
		t.Errorf("counts %v, want 6 pending", counts)
	}
	claims := f.wantAdmitted("of the limited ones", with[0])
	claim, claimed := f.claim(newWorker("w2"), 10)
	f.wantIDs("of the plain ones", mapped(claimed, func(c store.ClaimedRun) store.RunID { return c.ID }), plain...)
	f.settle(all(claim, newWorker("w2"), claimed, success()))
	claims.end(success())
	f.wantAdmitted("the next", with[1])
	if pending, oldest := f.waiting(store.DefaultQueue); pending.N != 1 || oldest == nil {
		t.Errorf("%+v wait, the oldest since %v, want one", pending, oldest)
	}
}

func limitKeys(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("Tenant", 1))
	a := newRuns(3, limited("tenant=Acme"))
	b := newRuns(2, limited("TENANT=straße"))
	none := newRuns(2, limited("tenant"))
	a[1].Limits = []store.LimitUse{{Limit: "tenant", Key: "acme"}}
	a[2].Limits = []store.LimitUse{{Limit: "tenant", Key: "ACME"}}
	f.enqueue(slices.Concat(a, b, none)...)
	claims := f.wantAdmitted("one of each key", a[0], b[0], none[0])
	f.wantGate("one of each", "tenant", "aCmE", 1, 2)
	f.wantGate("one of each", "tenant", "", 1, 1)
	claims.end(success())
	f.wantAdmitted("the next of each key", a[1], b[1], none[1]).end(success())
	f.wantAdmitted("the last", a[2])
	if info := f.gate("tenant", "of no run"); info.InUse != 0 || info.Limit.Max != 1 || info.Limit.Name != "tenant" {
		t.Errorf("a key that no run has had is %+v", info)
	}
}

func sharedLimit(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(4, limited("api"))
	runs[1].Queue, runs[2].Job, runs[3].Priority = "other", "report", 2
	f.enqueue(runs...)
	claims := f.wantAdmitted("of the default queue, the highest priority first", runs[3], runs[0])
	if claims[0].runs[0].ID != runs[3].ID {
		t.Error("the run of the higher priority did not come first")
	}
	f.wantIDs("full", admittedAll{f.admit(10, "other")}.ids())
	f.wantGate("full", "api", "", 2, 2)
	if waiters := f.gate("api", "").Waiters; len(waiters) != 2 || waiters[0].Run != runs[1].ID || waiters[0].Queue != "other" || waiters[1].Job != "report" {
		t.Errorf("waiters %+v, want %s of the other queue and the report", waiters, runs[1].ID)
	}
	claims.end(success())
	f.wantIDs("of the other queue", admittedAll{f.admit(10, "other")}.ids(), runs[1])
}

func limitWeights(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	heavy, light := newRuns(2, limited("api*2")), newRuns(3, limited("api"))
	f.enqueue(heavy[0], heavy[1], light[0], light[1], light[2])
	claims := f.wantAdmitted("the second needs two places, and those behind it wait", heavy[0])
	f.wantGate("two of three", "api", "", 2, 4)
	claims.end(success())
	claims = f.wantAdmitted("three places", heavy[1], light[0])
	f.wantGate("three of three", "api", "", 3, 2)
	claims.end(success())
	f.wantAdmitted("the others", light[1], light[2])
	if permits := f.gate("api", "").Permits; len(permits) != 1 || permits[0].Places != 2 || len(permits[0].Runs) != 2 || permits[0].Worker != "w1" {
		t.Errorf("permits %+v, want one of two places, with two runs, of worker w1", permits)
	}
}

func severalLimits(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("a", 1), semaphore("b", 1))
	onlyB := newRun(limited("b"))
	f.enqueue(onlyB)
	holder := f.wantAdmitted("b is free", onlyB)
	first, second := newRun(limited("a", "b")), newRun(limited("b", "a"))
	onlyA := newRun(limited("a"))
	f.enqueue(first, second, onlyA)
	claims := f.wantAdmitted("b is full, and the two that need it take no place of a", onlyA)
	f.wantGate("a", "a", "", 1, int(f.gate("a", "").Waiting.N))
	holder.end(success())
	f.wantAdmitted("a is full")
	claims.end(success())
	claims = f.wantAdmitted("both are free", first)
	if a, b := f.gate("a", ""), f.gate("b", ""); a.InUse != 1 || b.InUse != 1 || a.Waiting.N+b.Waiting.N != 1 {
		t.Errorf("a %+v, b %+v, want a place of each in use and one waiter", a, b)
	}
	claims.end(success())
	f.wantAdmitted("both are free again", second).end(success())
	f.wantGate("at the end", "a", "", 0, 0)
	f.wantGate("at the end", "b", "", 0, 0)
	if attempt := f.record(second.ID).Attempt; attempt != 1 {
		t.Errorf("a run that was refused has had %d attempts", attempt)
	}
}

func eitherOrder(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("a", 2), semaphore("b", 3))
	var runs []store.NewRun
	for i := range 30 {
		runs = append(runs, newRun(limited([][]string{{"a", "b"}, {"b", "a"}, {"a"}, {"b*2"}, {"b=k", "a"}}[i%5]...)))
	}
	f.enqueue(runs...)
	for ended := 0; ended < len(runs); {
		claims := admittedAll(f.admitAll(4))
		if len(claims) == 0 {
			t.Fatalf("%d of %d have ended, and nothing more starts", ended, len(runs))
		}
		if a, b := f.gate("a", ""), f.gate("b", ""); a.InUse > 2 || b.InUse > 3 {
			t.Fatalf("%d places of a, %d of b are in use", a.InUse, b.InUse)
		}
		ended += len(claims.ids())
		claims.end(success())
	}
	f.wantGate("at the end", "a", "", 0, 0)
	f.wantGate("at the end", "b", "", 0, 0)
	f.wantGate("at the end", "b", "k", 0, 0)
}
