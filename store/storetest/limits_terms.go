package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func limitTermTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"until finished, a run that is retried has its place":             untilFinished,
		"until finished, every end of the run frees its place":            untilFinishedEnds,
		"until finished or revived, a dead run has its place":             untilRevived,
		"a run acquires places for an owner, and another gives them back": ownerPlaces,
		"an owner that has places has no more of them for more runs":      ownerPlacesOnce,
		"a heavy run that leaves its line blocks no other any more":       heavyLeaves,
		"runs behind a heavy one are not stuck":                           heavyIsFirst,
		"when full, drop cancels those beyond the places":                 whenFullDrop,
		"when full, those that come later are acted on immediately":       whenFullAlready,
		"when full, fail ends those beyond the places":                    whenFullFail,
		"when full, retry puts off those beyond the places":               whenFullRetry,
		"when full, the run that executes for the longest is cancelled":   whenFullCancelOldest,
	}
}

func untilFinished(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	run, other := newRun(limited("api!finished")), newRun(limited("api!finished"))
	f.enqueue(run, other)
	f.wantAdmitted("it", run).end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Minute})
	f.wantGate("to be retried", "api", "", 1, 1)
	f.wantAdmitted("its place is taken")
	f.advance(61 * time.Second)
	f.wantAdmitted("the retry needs no other place", run)
	f.advance(31 * time.Second)
	f.reclaim()
	f.wantGate("after a crash", "api", "", 1, 1)
	again := f.wantAdmitted("nor does it after a crash", run)
	if permits := f.gate("api", "").Permits; len(permits) != 1 || permits[0].Until != store.UntilFinished || permits[0].Places != 1 || permits[0].Runs[0] != run.ID {
		t.Errorf("permits %+v, want one of the run", permits)
	}
	again.end(success())
	f.wantAdmitted("it has ended", other)
}

func untilFinishedEnds(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	retry := store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour}
	for name, end := range map[string]func(run store.NewRun, claims admittedAll){
		"success": func(_ store.NewRun, claims admittedAll) { claims.end(success()) },
		"death":   func(_ store.NewRun, claims admittedAll) { claims.end(store.Outcome{Kind: store.Death, Error: "e"}) },
		"cancelled": func(_ store.NewRun, claims admittedAll) {
			claims.end(store.Outcome{Kind: store.Cancellation, Error: "e"})
		},
		"cancelled in its line": func(run store.NewRun, claims admittedAll) { claims.end(retry); f.command(store.CancelRuns, run.ID) },
		"deleted in its line":   func(run store.NewRun, claims admittedAll) { claims.end(retry); f.command(store.DeleteRuns, run.ID) },
		"replaced in its line": func(run store.NewRun, claims admittedAll) {
			claims.end(retry)
			f.existing(run.ID, newRun(func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} }))
			f.command(store.DeleteRuns, run.ID)
		},
	} {
		run := newRun(limited("api!finished"), func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} })
		next := newRun(limited("api"))
		f.enqueue(run, next)
		end(run, f.wantAdmitted("before "+name, run))
		f.wantAdmitted("after "+name, next).end(success())
	}
}

func untilRevived(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	dead, other := newRun(limited("api!finished-or-revived")), newRun(limited("api"))
	f.enqueue(dead, other)
	f.wantAdmitted("it", dead).end(store.Outcome{Kind: store.Death, Error: "e"})
	f.wantAdmitted("a dead run has its place")
	f.command(store.RetryRuns, dead.ID)
	f.wantAdmitted("and needs no other when it is retried", dead).end(store.Outcome{Kind: store.Death, Error: "e"})
	f.wantGate("dead again", "api", "", 1, 1)
	f.command(store.DeleteRuns, dead.ID)
	f.wantAdmitted("deleted", other)
}

func ownerPlaces(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	const acquire = "api!acquire:10m0s:batch+7"
	start, again, end := newRun(limited(acquire)), newRun(limited(acquire)), newRun(limited("api!release:batch+7"))
	other := newRun(limited("api!acquire:10m0s:batch+8"))
	f.enqueue(start)
	f.wantAdmitted("it begins the batch", start).end(success())
	f.wantGate("its place is the owner's", "api", "", 1, 0)
	if permits := f.gate("api", "").Permits; len(permits) != 1 || permits[0].Until != store.UntilExpires || permits[0].ExpiresAt == nil {
		t.Errorf("permits %+v, want one that expires", permits)
	}
	f.enqueue(other, again)
	f.wantAdmitted("the owner has it", again).end(success())
	f.enqueue(end)
	f.wantAdmitted("it needs no place", end).end(store.Outcome{Kind: store.Failure, Error: "e"})
	f.wantGate("a failure gives nothing back", "api", "", 1, 1)
	f.wantAdmitted("it is retried", end).end(success())
	f.wantAdmitted("another owner", other).end(success())
	waits := newRun(limited("api"))
	f.enqueue(waits)
	f.wantAdmitted("another owner has it")
	f.advance(11 * time.Minute)
	f.wantAdmitted("it has expired", waits)
}

func ownerPlacesOnce(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	one, two := newRun(limited("api!acquire:20m0s:ann")), newRun(limited("api!acquire:10m0s:ann"))
	f.enqueue(one, two, newRun(limited("api!acquire:10m0s:bob")))
	if claims := f.admitAll(10); len(claims) != 1 || len(claims[0].runs) != 3 {
		t.Fatalf("%d claims, want one of three runs", len(claims))
	} else {
		admittedAll(claims).end(success())
	}
	f.wantGate("two of one owner are together", "api", "", 2, 0)
	heavy, other := newRun(limited("api*2!acquire:1m0s:ann")), newRun(limited("api"))
	f.enqueue(heavy, other)
	f.wantAdmitted("the owner has a place", heavy).end(success())
	f.wantGate("it takes none that bob has", "api", "", 2, 1)
	f.advance(11 * time.Minute)
	f.wantGate("bob's time is over, and none of ann's is lost", "api", "", 1, 1)
	f.wantAdmitted("bob's place", other).end(success())
	f.advance(10 * time.Minute)
	f.wantGate("ann's time is over", "api", "", 0, 0)
	f.enqueue(newRun(limited("api*2!acquire:1m0s:ann")))
	f.admitAll(10)
	f.wantGate("its places are new ones", "api", "", 2, 0)
}

func heavyLeaves(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	holds := newRun(limited("api*2"))
	f.enqueue(holds)
	f.wantAdmitted("it has two of three", holds)
	for name, leave := range map[string]func(heavy store.NewRun){
		"cancelled": func(heavy store.NewRun) { f.command(store.CancelRuns, heavy.ID) },
		"deleted":   func(heavy store.NewRun) { f.command(store.DeleteRuns, heavy.ID) },
		"replaced": func(heavy store.NewRun) {
			f.existing(heavy.ID, newRun(func(r *store.NewRun) { r.Key, r.After = store.Key{Text: "k", Policy: store.KeyReplace}, time.Hour }))
			f.command(store.DeleteRuns, heavy.ID)
		},
	} {
		heavy, light := newRun(limited("api*2"), func(r *store.NewRun) { r.Key.Text = "k" }), newRun(limited("api"))
		f.enqueue(heavy, light)
		f.wantAdmitted("the first of the line wants two")
		leave(heavy)
		f.wantAdmitted(name, light).end(success())
	}
}

// heavyIsFirst admits one run at a time, so that no claim reads as far as the light one.
func heavyIsFirst(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	holds, heavy, light := newRun(limited("api")), newRun(limited("api*2")), newRun(limited("api"))
	f.enqueue(holds, heavy, light)
	first := f.admit(1)
	f.wantIDs("the first", admittedAll{first}.ids(), holds)
	f.wantAdmitted("the heavy one is the next")
	f.sound()
	first.end(success())
	f.wantAdmitted("two places", heavy).end(success())
	f.wantAdmitted("one place", light).end(success())
	f.sound()
}

func whenFullDrop(t *testing.T, f *fixture) {
	limit := semaphore("api", 2)
	limit.WhenFull = store.FullDrop
	f.declareLimits(limit)
	runs := newRuns(4, limited("api"))
	patient := newRun(limited("api!wait"))
	f.enqueue(append(runs, patient)...)
	claims := f.wantAdmitted("two places", runs[0], runs[1])
	f.wantRefused(store.Cancelled, "api", runs[2], runs[3])
	f.wantGate("one says that it waits", "api", "", 2, 1)
	claims.end(success())
	f.wantAdmitted("the one that waits", patient)
	late := newRuns(2, limited("api"))
	f.enqueue(late...)
	f.wantAdmitted("one place", late[0])
	f.wantRefused(store.Cancelled, "api", late[1])
	if changed, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{claims[0].claim}); err != nil || len(changed) != 0 {
		t.Errorf("cancels %v, %v", changed, err)
	}
}

// whenFullAlready enqueues runs for a limit that has no room when they come, by itself or
// beside one that has.
func whenFullAlready(t *testing.T, f *fixture) {
	dropping := semaphore("dropping", 1)
	dropping.WhenFull = store.FullDrop
	f.declareLimits(semaphore("api", 1), dropping, semaphore("free", 5))
	holder := newRun(limited("api", "dropping"))
	f.enqueue(holder)
	claims := f.wantAdmitted("room", holder)
	for _, c := range []struct {
		limits []string
		state  store.State
		by     string
	}{
		{[]string{"api!drop"}, store.Cancelled, "api"},
		{[]string{"api!fail"}, store.Dead, "api"},
		{[]string{"dropping"}, store.Cancelled, "dropping"},
		{[]string{"free", "api!drop"}, store.Cancelled, "api"},
		{[]string{"api!drop", "free"}, store.Cancelled, "api"},
		{[]string{"free!finished", "dropping"}, store.Cancelled, "dropping"},
	} {
		run := newRun(limited(c.limits...))
		f.enqueue(run)
		f.wantAdmitted("no room")
		if f.wantRefused(c.state, c.by, run); t.Failed() {
			t.Fatalf("with limits %v", c.limits)
		}
	}
	put := newRun(limited("api!retry:1m0s"))
	f.enqueue(put)
	f.wantAdmitted("no room")
	if r := f.record(put.ID); r.State != store.Pending || r.DueAt.Sub(f.now()) < 50*time.Second {
		t.Errorf("the run is %v, due in %v", r.State, r.DueAt.Sub(f.now()))
	}
	claims.end(success())
}

// wantRefused expects runs that have ended for a reason that names a limit, and
// without an attempt.
func (f *fixture) wantRefused(state store.State, limit string, runs ...store.NewRun) {
	f.t.Helper()
	for _, run := range runs {
		r := f.record(run.ID)
		if r.State != state || r.Error == nil || !strings.Contains(*r.Error, limit) || r.Attempt != 0 || r.FinishedAt == nil {
			f.t.Errorf("run %s is %v after %d attempts, reason %q, want %v, 0, naming %s", run.ID, r.State, r.Attempt, text(r.Error), state, limit)
		}
	}
}

func whenFullFail(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(3, limited("api!fail"))
	f.enqueue(runs...)
	f.wantAdmitted("one place", runs[0]).end(success())
	f.wantRefused(store.Dead, "api", runs[1:]...)
	f.command(store.RetryRuns, runs[2].ID)
	f.wantAdmitted("retried by an operator", runs[2])
}

func whenFullRetry(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(3, limited("api!retry:1m0s"))
	f.enqueue(runs...)
	claims := f.wantAdmitted("one place", runs[0])
	for _, run := range runs[1:] {
		if r := f.record(run.ID); r.State != store.Pending || r.Attempt != 0 || r.DueAt.Sub(f.now()) < 50*time.Second {
			t.Errorf("the run is %v, due in %v, after %d attempts", r.State, r.DueAt.Sub(f.now()), r.Attempt)
		}
	}
	claims.end(success())
	f.wantAdmitted("they are put off")
	f.advance(61 * time.Second)
	claims = f.wantAdmitted("due again", runs[1])
	f.advance(20 * time.Second)
	claims.end(success())
	f.advance(41 * time.Second)
	f.wantAdmitted("due once more", runs[2])
}

func whenFullCancelOldest(t *testing.T, f *fixture) {
	limit := semaphore("api", 2)
	limit.WhenFull = store.FullCancelOldest
	f.declareLimits(limit)
	runs := newRuns(4, limited("api"))
	f.enqueue(runs[:2]...)
	first := f.admit(1)
	second := f.admit(1)
	f.wantIDs("two places", admittedAll{first, second}.ids(), runs[:2]...)
	f.enqueue(runs[2])
	f.wantAdmitted("it waits until the oldest ends")
	f.wantCancels(first, second, 1, 0)
	f.enqueue(runs[3])
	f.wantAdmitted("it waits until the next ends")
	f.wantCancels(first, second, 1, 1)
	if grant := f.use(store.LimitRequest{Usage: store.UsageAcquire, Limit: "api", Owner: "ann", For: time.Minute}); grant.Granted {
		t.Error("code outside of runs got a place, and there is none")
	}
	first.end(store.Outcome{Kind: store.Failure, Error: "ctx ended", After: time.Second})
	if r := f.record(first.runs[0].ID); r.State != store.Cancelled || r.Error == nil || !strings.Contains(*r.Error, "api") {
		t.Errorf("the oldest is %v, %q, want it cancelled for the limit", r.State, text(r.Error))
	}
	f.wantAdmitted("in its place", runs[2])
}

// wantCancels expects so many requests to cancel runs of two claims.
func (f *fixture) wantCancels(first, second admitted, ofFirst, ofSecond int) {
	f.t.Helper()
	for i, want := range []int{ofFirst, ofSecond} {
		asked, err := f.store.CancelRequests(f.ctx, []lease.ClaimID{[]admitted{first, second}[i].claim})
		if err != nil || len(asked) != want {
			f.t.Errorf("claim %d has %d requests to cancel (%v), want %d", i+1, len(asked), err, want)
		}
	}
}
