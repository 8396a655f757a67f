package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func limitKindTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a fixed window admits so many in each period":                              fixedWindow,
		"a sliding window admits so many in any time as long as its period":         slidingWindow,
		"a token bucket admits a burst, and then one each interval":                 tokenBucket,
		"a dynamic window is shared out between the keys in use":                    dynamicWindow,
		"starts that were handed back before they began are given back":             startsRefunded,
		"a rate and a semaphore on one run are charged together or not":             rateAndPlaces,
		"an attempt that is retried is another start":                               retryIsAStart,
		"a run whose handler has not begun gives its starts back, another does not": startsGivenBack,
		"code outside of runs takes starts, and runs wait the longer":               takenStarts,
		"code outside of runs acquires places, renews them, gives them back":        acquiredPlaces,
		"places that expire are free":                                               expiredPlaces,
		"what code outside of runs may not ask is refused":                          usesRefused,
		"a key that is penalized admits nothing until then":                         penalizedKey,
		"an operator lifts a penalty":                                               liftedPenalty,
		"a penalty is checked, and of every kind of limit":                          checkedPenalties,
	}
}

func fixedWindow(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitFixedWindow, Max: 3, Period: 24 * time.Hour})
	runs := newRuns(7, limited("api"))
	f.enqueue(runs...)
	f.wantAdmitted("three", runs[:3]...).end(success())
	f.wantAdmitted("not in this period")
	f.advance(24 * time.Hour)
	f.wantAdmitted("the next period", runs[3:6]...).end(success())
	f.wantAdmitted("not in this period")
	f.advance(24 * time.Hour)
	f.wantAdmitted("the next period", runs[6])
}

func slidingWindow(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitSlidingWindow, Max: 2, Period: time.Hour, Buckets: 60})
	runs := newRuns(5, limited("api"))
	f.enqueue(runs[0])
	f.wantAdmitted("one", runs[0]).end(success())
	f.advance(40 * time.Minute)
	f.enqueue(runs[1:]...)
	f.wantAdmitted("two within an hour", runs[1]).end(success())
	f.wantAdmitted("no more")
	f.advance(21 * time.Minute)
	f.wantAdmitted("the first has left the window", runs[2]).end(success())
	f.wantAdmitted("no more")
	f.advance(40 * time.Minute)
	f.wantAdmitted("the second has left the window", runs[3]).end(success())
	f.advance(21 * time.Minute)
	f.wantAdmitted("the third has left the window", runs[4])
}

func tokenBucket(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 60, Period: time.Hour, Burst: 3})
	runs := newRuns(8, limited("api"))
	f.enqueue(runs...)
	f.wantAdmitted("the burst", runs[:3]...).end(success())
	f.wantAdmitted("no more")
	if info := f.gate("api", ""); info.NextAt == nil || info.NextAt.Sub(f.now()) > time.Minute || info.NextAt.Sub(f.now()) < 50*time.Second {
		t.Errorf("the next is admitted at %v, want in about a minute of %v", info.NextAt, f.now())
	}
	f.advance(61 * time.Second)
	f.wantAdmitted("one a minute", runs[3]).end(success())
	f.wantAdmitted("no more")
	f.advance(122 * time.Second)
	f.wantAdmitted("two in two minutes", runs[4], runs[5]).end(success())
	f.advance(time.Hour)
	f.wantAdmitted("the rest", runs[6], runs[7])
}

func dynamicWindow(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "fair", Kind: store.LimitDynamicWindow, Max: 20, Period: time.Hour, Buckets: 60, Least: 2, Most: 20})
	for _, want := range [][]int{{20}, {10, 10}, {6, 7, 7}, {5, 5, 5, 5}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}} {
		for key := range want {
			f.enqueue(newRuns(21, limited(fmt.Sprintf("fair=%d", key)))...)
		}
		counts := make([]int, len(want))
		for _, a := range f.admitAll(200) {
			for _, r := range a.runs {
				var key int
				if _, err := fmt.Sscanf(f.record(r.ID).Limits[0], "fair=%d", &key); err != nil {
					t.Fatal(err)
				}
				counts[key]++
			}
			a.end(success())
		}
		if slices.Sort(counts); !slices.Equal(counts, want) {
			t.Errorf("of %d keys %v were admitted, want %v", len(want), counts, want)
		}
		for _, record := range f.list(store.Filter{States: []store.State{store.Pending}, Limit: 200}).Runs {
			f.command(store.CancelRuns, record.ID)
		}
		f.advance(2 * time.Hour)
	}
}

func startsRefunded(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitFixedWindow, Max: 2, Period: 24 * time.Hour},
		store.Limit{Name: "bucket", Kind: store.LimitTokenBucket, Max: 1, Period: time.Hour, Burst: 2})
	runs := newRuns(3, limited("api", "bucket"))
	f.enqueue(runs...)
	for range 3 {
		request := f.admission(newWorker("w1"), 10)
		if claimed, err := f.store.Claim(f.ctx, request); err != nil || len(claimed) != 2 {
			t.Fatalf("claimed %d runs (%v), want 2", len(claimed), err)
		}
		if _, err := f.store.HandBack(f.ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	if claims := admittedAll(f.admitAll(10)); len(claims.ids()) != 2 {
		t.Errorf("admitted %d runs, want 2", len(claims.ids()))
	}
}

func rateAndPlaces(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "rate", Kind: store.LimitFixedWindow, Max: 2, Period: 24 * time.Hour}, semaphore("places", 1))
	runs := newRuns(4, limited("rate", "places"))
	f.enqueue(runs...)
	claims := f.wantAdmitted("one place", runs[0])
	f.wantAdmitted("no place, and no start is spent")
	claims.end(success())
	f.wantAdmitted("the second start", runs[1]).end(success())
	f.wantAdmitted("no start, and no place is taken")
	f.wantGate("no start", "places", "", 0, 0)
	f.advance(24 * time.Hour)
	f.wantAdmitted("the next period", runs[2])
}

func retryIsAStart(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitFixedWindow, Max: 2, Period: 24 * time.Hour})
	runs := newRuns(2, limited("api"))
	f.enqueue(runs[0])
	f.wantAdmitted("it", runs[0]).end(store.Outcome{Kind: store.Failure, Error: "e"})
	f.wantAdmitted("again", runs[0]).end(store.Outcome{Kind: store.Failure, Error: "e"})
	f.enqueue(runs[1])
	f.wantAdmitted("two starts are spent")
	f.advance(24 * time.Hour)
	f.wantAdmitted("the next period", runs...)
}

// use asks for starts or places outside of runs.
func (f *fixture) use(request store.LimitRequest) store.LimitGrant {
	f.t.Helper()
	grant, err := f.store.UseLimit(f.ctx, request)
	if err != nil {
		f.t.Fatalf("UseLimit: %v", err)
	}
	return grant
}

func takenStarts(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 60, Period: time.Hour, Burst: 3})
	take := store.LimitRequest{Usage: store.UsageTake, Limit: "API", Weight: 2}
	if grant := f.use(take); !grant.Granted {
		t.Fatalf("%+v, want two of a burst of three", grant)
	}
	if grant := f.use(take); grant.Granted || grant.RetryIn < 50*time.Second || grant.RetryIn > time.Minute {
		t.Errorf("%+v, want two more in a minute", grant)
	}
	runs := newRuns(3, limited("api"))
	f.enqueue(runs...)
	f.wantAdmitted("what is left of the burst", runs[0])
	if grant := f.use(store.LimitRequest{Usage: store.UsageCharge, Limit: "api", Weight: 2}); !grant.Granted {
		t.Errorf("%+v, want it charged past the limit", grant)
	}
	f.advance(61 * time.Second)
	f.wantAdmitted("it was charged past the limit")
	f.advance(2 * time.Minute)
	f.wantAdmitted("later", runs[1])
}

func acquiredPlaces(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	acquire := store.LimitRequest{Usage: store.UsageAcquire, Limit: "api", Key: "k", Owner: "batch 7", For: time.Minute, Weight: 2}
	if grant := f.use(acquire); !grant.Granted || grant.Expires != time.Minute {
		t.Fatalf("%+v, want both places", grant)
	}
	f.wantGate("acquired", "api", "K", 2, 0)
	if grant := f.use(acquire); !grant.Granted {
		t.Errorf("%+v, want the owner's again", grant)
	}
	f.wantGate("acquired again", "api", "k", 2, 0)
	other := acquire
	other.Owner, other.Weight = "another", 1
	if grant := f.use(other); grant.Granted || grant.RetryIn <= 0 || grant.RetryIn > time.Minute {
		t.Errorf("%+v, want it refused until they expire", grant)
	}
	run := newRun(limited("api=k"))
	f.enqueue(run)
	f.wantAdmitted("full")
	renew := acquire
	renew.Usage = store.UsageRenew
	f.advance(50 * time.Second)
	if grant := f.use(renew); !grant.Granted {
		t.Errorf("%+v, want it renewed", grant)
	}
	f.advance(50 * time.Second)
	f.wantAdmitted("still full")
	give := store.LimitRequest{Usage: store.UsageGive, Limit: "api", Key: "k", Owner: "batch 7"}
	if grant := f.use(give); !grant.Granted {
		t.Errorf("%+v, want them given back", grant)
	}
	if grant := f.use(give); grant.Granted {
		t.Errorf("%+v, want a second time to find none", grant)
	}
	if grant := f.use(renew); grant.Granted {
		t.Errorf("%+v, want no renewal of what was given back", grant)
	}
	f.wantAdmitted("given back", run)
	f.wantGate("the run's", "api", "k", 1, 0)
}

func expiredPlaces(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	if grant := f.use(store.LimitRequest{Usage: store.UsageAcquire, Limit: "api", Owner: "o", For: time.Minute}); !grant.Granted {
		t.Fatalf("%+v, want a place", grant)
	}
	run := newRun(limited("api"))
	f.enqueue(run)
	f.wantAdmitted("full")
	f.advance(61 * time.Second)
	if in := f.gate("api", "").InUse; in != 0 {
		t.Errorf("%d places are in use, want that which has expired to be free", in)
	}
	f.wantAdmitted("expired", run)
	if grant := f.use(store.LimitRequest{Usage: store.UsageRenew, Limit: "api", Owner: "o", For: time.Minute}); grant.Granted {
		t.Errorf("%+v, want no renewal of what has expired", grant)
	}
}

func usesRefused(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("places", 2), store.Limit{Name: "rate", Kind: store.LimitFixedWindow, Max: 2, Period: time.Hour})
	for name, request := range map[string]store.LimitRequest{
		"starts of a semaphore": {Usage: store.UsageTake, Limit: "places"},
		"places of a rate":      {Usage: store.UsageAcquire, Limit: "rate", Owner: "o", For: time.Minute},
		"no owner":              {Usage: store.UsageAcquire, Limit: "places", For: time.Minute},
		"no time":               {Usage: store.UsageAcquire, Limit: "places", Owner: "o"},
		"too heavy":             {Usage: store.UsageTake, Limit: "rate", Weight: 3},
		"an unknown usage":      {Usage: "eat", Limit: "rate"},
		"a key that is no text": {Usage: store.UsageTake, Limit: "rate", Key: "\xff"},
	} {
		if _, err := f.store.UseLimit(f.ctx, request); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := f.store.UseLimit(f.ctx, store.LimitRequest{Usage: store.UsageTake, Limit: "nowhere"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown limit: %v, want ErrNotFound", err)
	}
}

func penalizedKey(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	a, b := newRuns(2, limited("tenant=a")), newRun(limited("tenant=b"))
	f.enqueue(a...)
	claims := f.wantAdmitted("it", a[0])
	for _, in := range []time.Duration{time.Minute, time.Second} { // the longer one counts
		f.penalize("tenant", "A", in)
	}
	claims.end(success())
	f.enqueue(b)
	f.wantAdmitted("another key", b)
	info := f.gate("tenant", "a")
	if info.NotBefore == nil || info.NotBefore.Before(f.now().Add(50*time.Second)) || info.NextAt == nil || info.NextAt.Before(*info.NotBefore) {
		t.Errorf("the key is %+v, want it to wait a minute", info)
	}
	f.advance(50 * time.Second)
	f.wantAdmitted("not yet")
	f.advance(12 * time.Second)
	f.wantAdmitted("the penalty is over", a[1])
}

func (f *fixture) penalize(limit, key string, d time.Duration) {
	f.t.Helper()
	grant, err := f.store.UseLimit(f.ctx, store.LimitRequest{Usage: store.UsagePenalize, Limit: limit, Key: key, For: d})
	if err != nil || !grant.Granted {
		f.t.Fatalf("penalize %s=%s: %+v, %v", limit, key, grant, err)
	}
}

func liftedPenalty(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	run := newRun(limited("tenant=a"))
	f.penalize("tenant", "a", time.Hour)
	f.enqueue(run)
	f.wantAdmitted("penalized")
	for range 2 { // the second is a no-op
		if err := f.store.ChangeLimit(f.ctx, store.LimitChange{Command: store.LiftPenalty, Limit: store.Limit{Name: "tenant"}, Key: "A", By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if info := f.gate("tenant", "a"); info.NotBefore != nil {
		t.Errorf("the key is penalized until %v, want no penalty", info.NotBefore)
	}
	f.wantAdmitted("the penalty is lifted", run)
	page, err := f.store.Changes(f.ctx, store.ChangeFilter{Limit: 10, Kind: "limit"})
	if err != nil || len(page.Changes) != 1 || page.Changes[0].Action != "lift" || !strings.Contains(string(page.Changes[0].Detail), "A") {
		t.Errorf("audited %+v (%v), want one lift of the key", page.Changes, err)
	}
}

func checkedPenalties(t *testing.T, f *fixture) {
	dynamic := store.Limit{Name: "fair", Kind: store.LimitDynamicWindow, Max: 20, Period: time.Hour, Buckets: 60, Least: 2, Most: 20}
	bucket := store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 5, Period: time.Second, Burst: 5}
	f.declareLimits(dynamic, bucket)
	runs := []store.NewRun{newRun(limited("api")), newRun(limited("fair=a")), newRun(limited("fair=b")), newRun(limited("fair=c"))}
	f.penalize("api", "", time.Minute)
	f.penalize("fair", "a", time.Minute)
	f.enqueue(runs...)
	f.wantAdmitted("the other keys", runs[2:]...)
	f.penalize("fair", "", 2*time.Minute)
	f.advance(61 * time.Second)
	f.wantAdmitted("all keys of the dynamic window are penalized", runs[0])
	f.advance(time.Minute)
	f.wantAdmitted("the penalty is over", runs[1])
	for name, request := range map[string]store.LimitRequest{
		"no time":    {Usage: store.UsagePenalize, Limit: "api"},
		"backwards":  {Usage: store.UsagePenalize, Limit: "api", For: -time.Second},
		"too long":   {Usage: store.UsagePenalize, Limit: "api", For: store.MaxDelay + 1},
		"a weight":   {Usage: store.UsagePenalize, Limit: "api", For: time.Second, Weight: 2},
		"an owner":   {Usage: store.UsagePenalize, Limit: "api", For: time.Second, Owner: "me"},
		"a bad key":  {Usage: store.UsagePenalize, Limit: "api", Key: "a\x00", For: time.Second},
		"a bad name": {Usage: store.UsagePenalize, Limit: "a b", For: time.Second},
	} {
		if _, err := f.store.UseLimit(f.ctx, request); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := f.store.UseLimit(f.ctx, store.LimitRequest{Usage: store.UsagePenalize, Limit: "nowhere", For: time.Second}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a limit that is not there: %v, want ErrNotFound", err)
	}
}

// startsGivenBack hands runs back: only those whose handlers have not begun give their
// starts back.
func startsGivenBack(_ *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "window", Kind: store.LimitFixedWindow, Max: 1, Period: 24 * time.Hour},
		store.Limit{Name: "bucket", Kind: store.LimitTokenBucket, Max: 1, Period: 24 * time.Hour, Burst: 1})
	for _, name := range []string{"window", "bucket"} {
		run := newRun(limited(name))
		f.enqueue(run)
		f.wantAdmitted(name, run).end(store.Outcome{Kind: store.HandedBack, Unbegun: true})
		f.wantAdmitted(name+", whose start was given back", run).end(store.Outcome{Kind: store.Misfit, Unbegun: true})
		f.wantAdmitted(name+", whose start a misfit gave back", run).end(store.Outcome{Kind: store.HandedBack})
		f.wantAdmitted(name + ", whose start was used")
		f.advance(24 * time.Hour)
		f.wantAdmitted(name+", in its next period", run).end(success())
	}
}
