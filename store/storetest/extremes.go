package storetest

import (
	"encoding/json"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/store"
)

// Durations, instants and counts at their extremes. A duration holds 292 years, so what is
// due in the year 9999 is further ahead than any.
func extremeTests() map[string]func(*testing.T, *fixture) {
	tests := map[string]func(*testing.T, *fixture){
		"requests for as much as there is are answered":             asMuchAsThereIs,
		"what lasts as long as anything is held, and can be read":   asLongAsThereIs,
		"what is backwards, or nothing, is refused or changes none": backwards,
	}
	ways := putFarAhead()
	maps.Copy(ways, putFarUnderLimits())
	for way, put := range ways {
		tests["workers leave alone what is due at the end of time: "+way] = func(t *testing.T, f *fixture) {
			put(t, f)
			f.wantLeftAlone()
			f.wantReadable()
		}
	}
	return tests
}

const longest = time.Duration(math.MaxInt64)

// endOfTime returns the last instant at which a run may be due.
func endOfTime() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) }

// putFarAhead are the ways in which a run comes to be due as far ahead as it can.
func putFarAhead() map[string]func(*testing.T, *fixture) {
	at := func(r *store.NewRun) { r.At = endOfTime() }
	settled := func(outcome store.Outcome) func(*testing.T, *fixture) {
		return func(_ *testing.T, f *fixture) {
			f.enqueue(newRun())
			claim, run := f.claimOne(newWorker("w1"))
			f.settle(one(claim, newWorker("w1"), run.ID, outcome))
		}
	}
	return map[string]func(*testing.T, *fixture){
		"enqueued":  func(_ *testing.T, f *fixture) { f.enqueue(newRun(at)) },
		"in a line": func(_ *testing.T, f *fixture) { f.enqueue(newRuns(3, at)...) },
		"delayed":   func(_ *testing.T, f *fixture) { f.enqueue(newRun(func(r *store.NewRun) { r.After = store.MaxDelay })) },
		"debounced": func(_ *testing.T, f *fixture) {
			f.enqueue(newRun(func(r *store.NewRun) {
				r.Key = store.Key{Text: "k", Policy: store.KeyDebounce, Quiet: store.MaxDelay, AtMost: store.MaxDelay}
			}))
		},
		"expiring": func(_ *testing.T, f *fixture) {
			f.enqueue(newRun(at, func(r *store.NewRun) { r.ExpiresAt = endOfTime() }))
		},
		"snoozed": settled(store.Outcome{Kind: store.Snoozed, After: longest}),
		"failed":  settled(store.Outcome{Kind: store.Failure, After: longest, Error: "boom"}),
		"isolated": func(_ *testing.T, f *fixture) {
			run := newRun()
			f.isolate(run)
			request := f.claimLine(run.ID, func(r *store.ClaimRequest) { r.Alone = true })
			f.settle(one(request.Claim, request.Worker, run.ID, store.Outcome{Kind: store.Snoozed, After: longest}))
		},
		"by a schedule": func(t *testing.T, f *fixture) {
			f.declare(newSchedule("far"))
			f.materialize(10, func(_ time.Time, _ store.Schedule) store.Decision {
				return store.Decision{NextAt: endOfTime(), Occurrences: []store.Occurrence{{Key: "one", Run: newRun(at)}}}
			})
			if made := f.materialize(10, fire); made.Due != 0 || made.Next < longest/2 {
				t.Errorf("materialized %+v, want nothing for centuries", made)
			}
		},
	}
}

// putFarUnderLimits are those of limited runs.
func putFarUnderLimits() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"limited": func(_ *testing.T, f *fixture) {
			f.declareLimits(semaphore("api", 1))
			f.enqueue(newRun(limited("api"), func(r *store.NewRun) { r.At = endOfTime() }))
		},
		"limited and snoozed": func(_ *testing.T, f *fixture) {
			run := newRun(limited("api"))
			f.declareLimits(semaphore("api", 1))
			f.enqueue(run)
			f.wantAdmitted("it", run).end(store.Outcome{Kind: store.Snoozed, After: longest})
		},
		"under a penalty": func(_ *testing.T, f *fixture) {
			f.declareLimits(semaphore("api", 1))
			f.penalize("api", "", store.MaxDelay)
			f.enqueue(newRun(limited("api")))
			f.wantAdmitted("it is penalized")
		},
		"put off by a full limit": func(_ *testing.T, f *fixture) {
			full := semaphore("api", 1)
			full.WhenFull, full.RetryAfter = store.FullRetry, store.MaxDelay
			runs := newRuns(2, limited("api"))
			f.declareLimits(full)
			f.enqueue(runs...)
			f.wantAdmitted("the first", runs[0])
			f.wantAdmitted("the second is put off")
		},
		"after the starts of a century": func(_ *testing.T, f *fixture) {
			f.declareLimits(store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 1, Period: store.MaxLimitPeriod, Burst: 10})
			runs := newRuns(2, limited("api"))
			f.use(store.LimitRequest{Usage: store.UsageCharge, Limit: "api", Weight: store.MaxLimit})
			f.enqueue(runs...)
			f.wantAdmitted("all starts are taken")
		},
	}
}

// wantLeftAlone lets a poller that reads the heads as a worker does pass an hour of its
// time, and expects it to sleep from poll to poll and to find nothing to claim. The store's
// time does not pass.
func (f *fixture) wantLeftAlone() {
	f.t.Helper()
	f.wantAdmitted("what is due at the end of time") // what is left of turns is taken
	const interval = time.Minute
	serves := store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}}
	poller := protocol.Ask{Capacity: 10, Batch: 10, Interval: interval, Linger: time.Millisecond}
	plan := claimplan.New(1 << 20)
	polls := int(time.Hour / interval)
	now, looks := 12*time.Hour, 0 // since the machine started
	for effects := poller.Step(protocol.AskEvent{At: now}); now < 13*time.Hour; {
		if effects.Ask == 0 {
			now = effects.Wake
			effects = poller.Step(protocol.AskEvent{At: now})
			continue
		}
		if looks++; looks > 2*polls {
			f.t.Fatalf("after %v of its time a worker has read the heads %d times", now-12*time.Hour, looks)
		}
		plan.Outdate()
		plan.Consider(claimplan.Woken{}, now)
		reading := plan.Read(now)
		serves.From = reading.From
		heads, err := f.store.Heads(f.ctx, serves)
		if err != nil {
			f.t.Fatalf("Heads: %v", err)
		}
		plan.SetHeads(reading, heads, now+time.Millisecond, interval) // it took a while: the next one may read from the marks on
		if ask := plan.Ask(10, func(string) int { return -1 }); !ask.Empty() || len(plan.Isolated()) > 0 {
			f.t.Fatalf("a worker takes one of %+v for due", heads)
		}
		effects = poller.Step(protocol.AskEvent{Kind: protocol.AskAnswered, At: now, Next: plan.Sleep(), Random: 0.5})
	}
}

// wantReadable expects everything that operators list to be read, and to have a JSON form.
func (f *fixture) wantReadable() {
	f.t.Helper()
	for what, read := range map[string]func() (any, error){
		"Runs":          func() (any, error) { page, err := f.store.Runs(f.ctx, store.Filter{}); return page.Runs, err },
		"ListSchedules": func() (any, error) { return f.store.ListSchedules(f.ctx) },
		"ListLimits":    func() (any, error) { return f.store.ListLimits(f.ctx, store.LimitFilter{Caps: true}) },
		"Survey":        func() (any, error) { return f.store.Survey(f.ctx) },
		"Workers":       func() (any, error) { return f.store.Workers(f.ctx) },
		"Jobs":          func() (any, error) { return f.store.Jobs(f.ctx) },
		"Gate": func() (any, error) {
			f.declareLimits(semaphore("another", 1))
			return f.store.Gate(f.ctx, "another", "")
		},
		"CheckLimits": func() (any, error) { return f.store.CheckLimits(f.ctx) },
		"Facts": func() (any, error) {
			page, err := f.store.Runs(f.ctx, store.Filter{})
			if err != nil || len(page.Runs) == 0 {
				return nil, err
			}
			return f.store.Facts(f.ctx, page.Runs[0].ID)
		},
	} {
		answer, err := read()
		if err != nil {
			f.t.Errorf("%s: %v", what, err)
		} else if _, err = json.Marshal(answer); err != nil {
			f.t.Errorf("%s cannot be written as JSON: %v", what, err)
		}
	}
	if faults, err := f.store.CheckLimits(f.ctx); err != nil || len(faults) > 0 {
		f.t.Errorf("CheckLimits: %+v, %v", faults, err)
	}
}
