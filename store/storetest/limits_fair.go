package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// What runs of several keys promise each other that wait for one thing: keys take turns,
// whatever it is, and one that comes later starts within a round.
func limitFairTests() map[string]func(*testing.T, *fixture) {
	tests := map[string]func(*testing.T, *fixture){
		"a key with a thousand runs is one of its round":                               fairToOneRun,
		"a run that has a place already waits behind none that waits for it":           fairReentry,
		"runs of one key start by priority and age, whatever else they wait for":       fairWithinKey,
		"what waits in a round is cancelled, drained, turned off and paused as others": fairOperated,
	}
	for _, one := range arrangements() {
		tests["keys take turns that come one after another, below "+one.name] = func(t *testing.T, f *fixture) { keysTakeTurns(t, f, &one) }
	}
	return tests
}

// arrangement is what runs of several keys wait for.
type arrangement struct {
	name   string
	limits []store.Limit
	uses   []string      // %d is the key
	after  time.Duration // passes with each step
	capped int           // of the queue
}

func arrangements() []arrangement {
	tenant := semaphore("tenant", 2)
	return []arrangement{
		{name: "one semaphore", limits: []store.Limit{tenant, semaphore("all", 4)}, uses: []string{"tenant=%d", "all"}},
		{name: "a mutex", limits: []store.Limit{tenant, semaphore("all", 1)}, uses: []string{"tenant=%d", "all"}},
		{name: "the cap of a job", limits: []store.Limit{tenant, semaphore("job:mail", 3)}, uses: []string{"tenant=%d", "job:mail"}},
		{name: "the cap of a queue", limits: []store.Limit{tenant}, uses: []string{"tenant=%d"}, capped: 3},
		{name: "the cap of a queue and a semaphore", limits: []store.Limit{tenant, semaphore("all", 4)}, uses: []string{"tenant=%d", "all"}, capped: 3},
		{name: "two semaphores", limits: []store.Limit{tenant, semaphore("all", 4), semaphore("both", 3)}, uses: []string{"tenant=%d", "all", "both"}},
		{
			name: "a semaphore, beside a mutex of each account", limits: []store.Limit{tenant, semaphore("account", 1), semaphore("all", 4)},
			uses: []string{"tenant=%[1]d", "account=%[1]d", "all"},
		},
		{
			name: "a fixed window", limits: []store.Limit{tenant, {Name: "all", Kind: store.LimitFixedWindow, Max: 4, Period: time.Hour}},
			uses: []string{"tenant=%d", "all"}, after: time.Hour,
		},
		{
			name: "a sliding window", limits: []store.Limit{tenant, {Name: "all", Kind: store.LimitSlidingWindow, Max: 3, Period: time.Hour, Buckets: 60}},
			uses: []string{"tenant=%d", "all"}, after: time.Hour,
		},
		{
			name: "a token bucket", limits: []store.Limit{tenant, {Name: "all", Kind: store.LimitTokenBucket, Max: 4, Period: time.Hour, Burst: 1}},
			uses: []string{"tenant=%d", "all"}, after: 15 * time.Minute,
		},
		{
			name: "a semaphore and a token bucket", limits: []store.Limit{tenant, semaphore("places", 3), {Name: "all", Kind: store.LimitTokenBucket, Max: 4, Period: time.Hour, Burst: 2}},
			uses: []string{"tenant=%d", "places", "all"}, after: 30 * time.Minute,
		},
		{
			name: "the window that they share", limits: []store.Limit{{Name: "tenant", Kind: store.LimitDynamicWindow, Max: 20, Period: time.Hour, Buckets: 60, Least: 2, Most: 20}},
			uses: []string{"tenant=%d"}, after: time.Hour,
		},
		{
			name:   "the window that they share, and a semaphore",
			limits: []store.Limit{{Name: "tenant", Kind: store.LimitDynamicWindow, Max: 20, Period: time.Hour, Buckets: 60, Least: 2, Most: 20}, semaphore("all", 5)},
			uses:   []string{"tenant=%d", "all"}, after: time.Hour,
		},
	}
}

// contest is runs of several keys that wait for the same.
type contest struct {
	*fixture

	of     *arrangement
	keys   map[store.RunID]int
	starts map[int]int
	held   admittedAll
}

// join enqueues runs of a key.
func (c *contest) join(key, n int) {
	c.t.Helper()
	var texts []string
	for _, use := range c.of.uses {
		if slices.Contains([]byte(use), '%') {
			use = fmt.Sprintf(use, key)
		}
		texts = append(texts, use)
	}
	runs := newRuns(n, limited(texts...))
	for i := range runs {
		c.keys[runs[i].ID] = key
	}
	c.enqueue(runs...)
}

// step ends what executes, and starts what can start then, two at a time.
func (c *contest) step() (started int) {
	c.t.Helper()
	c.held.end(success())
	if c.of.after > 0 {
		c.advance(c.of.after)
	}
	c.held = nil
	for empty := 0; empty < 3; { // a claim that only has lines go from one round to another gets none
		a := c.admit(2)
		if len(a.runs) == 0 {
			empty++
			continue
		}
		empty, c.held = 0, append(c.held, a)
		for i := range a.runs {
			c.starts[c.keys[a.runs[i].ID]]++
			started++
		}
	}
	return started
}

// keysTakeTurns has keys with a backlog come one after another, and then one with one run.
func keysTakeTurns(t *testing.T, f *fixture, of *arrangement) {
	const keys, steps = 6, 12
	f.declareLimits(of.limits...)
	if of.capped > 0 {
		f.capQueue(store.DefaultQueue, of.capped)
	}
	c := &contest{fixture: f, of: of, keys: map[store.RunID]int{}, starts: map[int]int{}}
	for key := range keys {
		c.join(key, 150)
		c.step()
	}
	for range 3 { // what those have that were alone ends
		c.step()
	}
	clear(c.starts)
	for range steps {
		c.step()
	}
	least, most := c.starts[0], c.starts[0]
	for key := range keys {
		least, most = min(least, c.starts[key]), max(most, c.starts[key])
	}
	if most > least+max(least/2, 1) || least < steps/keys {
		t.Errorf("six keys with a backlog started %v", c.starts)
	}
	c.join(keys, 1)
	for started := 0; c.starts[keys] == 0; started += c.step() {
		if started > 2*keys+4 {
			t.Fatalf("%d runs of the others have started before the newcomer's: %v", started, c.starts)
		}
	}
	f.sound()
}

// fairToOneRun has a key with a thousand runs beside ones that come with a single run each.
func fairToOneRun(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 50), semaphore("all", 4))
	c := &contest{fixture: f, of: &arrangement{uses: []string{"tenant=%d", "all"}}, keys: map[store.RunID]int{}, starts: map[int]int{}}
	c.join(0, 1000)
	for key := 1; key <= 20; key++ {
		c.join(key, 1)
		for range 2 {
			c.step()
		}
		if c.starts[key] == 0 {
			t.Fatalf("key %d has not started in two generations: %v", key, c.starts)
		}
	}
	f.wantGate("others", "tenant", "0", f.gate("tenant", "0").InUse, 1000-c.starts[0])
	f.sound()
}

// fairReentry retries a run that keeps its mutex until it has finished, while others wait for that,
// and others yet for what it needs besides.
func fairReentry(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("mutex", 1), semaphore("all", 1))
	first := newRun(limited("mutex!finished=a", "all"))
	f.enqueue(first)
	held := f.wantAdmitted("alone", first)
	waiting, other := newRuns(3, limited("mutex!finished=a", "all")), newRun(limited("mutex!finished=b", "all"))
	f.enqueue(waiting...)
	f.enqueue(other)
	f.wantAdmitted("all is full")
	held.end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Second})
	f.wantAdmitted("another key", other).end(success())
	f.wantAdmitted("its key is not free")
	f.advance(2 * time.Second)
	f.wantAdmitted("it has its key", first).end(success())
	for _, run := range waiting {
		f.wantAdmitted("one after another", run).end(success())
	}
	f.sound()
}

// fairWithinKey has runs of one key wait for the key alone, for more, and with a priority.
func fairWithinKey(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), semaphore("all", 2), semaphore("both", 2))
	first := newRun(limited("tenant=a"))
	f.enqueue(first)
	held := f.wantAdmitted("alone", first)
	var runs []store.NewRun
	for _, texts := range [][]string{{"tenant=a", "all"}, {"tenant=a"}, {"tenant=a", "both"}, {"tenant=a", "all"}, {"tenant=a", "all", "both"}, {"tenant=a"}} {
		run := newRun(limited(texts...))
		runs = append(runs, run)
		f.enqueue(run)
		f.wantAdmitted("full")
		f.advance(time.Millisecond)
	}
	urgent := newRun(limited("tenant=a", "all"), func(r *store.NewRun) { r.Priority = 1 })
	f.enqueue(urgent)
	held.end(success())
	f.wantAdmitted("the first of all", urgent).end(success())
	for _, run := range runs {
		f.wantAdmitted("by age", run).end(success())
	}
	f.sound()
}

// fairOperated changes what waits in a round, and what it waits for.
func fairOperated(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), semaphore("all", 1))
	var runs []store.NewRun
	for key := range 4 {
		run := newRun(limited(fmt.Sprintf("tenant=%d", key), "all"))
		runs = append(runs, run)
		f.enqueue(run)
		f.advance(time.Millisecond)
	}
	held := f.wantAdmitted("one", runs[0])
	f.wantGate("the others", "all", "", 1, 3)
	f.wantGate("its key", "tenant", "1", 0, 1)
	f.did(store.CancelRuns, runs[1].ID, store.RunChanged, store.Cancelled)
	f.changeLimit(store.DrainLimit, store.Limit{Name: "all"})
	held.end(success())
	f.wantAdmitted("drained")
	f.sound()
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "all"})
	f.setQueue(store.DefaultQueue, store.PauseQueue)
	f.wantAdmitted("paused")
	f.setQueue(store.DefaultQueue, store.ResumeQueue)
	f.wantAdmitted("the cancelled one is passed by", runs[2])
	f.changeLimit(store.DisableLimit, store.Limit{Name: "all"})
	f.wantAdmitted("off", runs[3])
	f.sound()
}

func onQueue(queue string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Queue = queue }
}

// twoWorkersShare has two workers of different queues on one limit, of which the
// first always asks first.
func twoWorkersShare(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	for range 20 {
		f.enqueue(newRun(limited("api"), onQueue("first")), newRun(limited("api"), onQueue("second")))
	}
	starts := map[string]int{}
	held := admittedAll{}
	for rounds := 0; starts["first"]+starts["second"] < 20; rounds++ {
		if rounds == 200 {
			t.Fatalf("after %d rounds no more than %v have started", rounds, starts)
		}
		for _, queue := range []string{"first", "second"} {
			if a := f.admit(2, queue); len(a.runs) > 0 {
				starts[queue] += len(a.runs)
				held = append(held, a)
			}
			if len(held) > 0 {
				held[0].end(success())
				held = held[1:]
			}
		}
	}
	if starts["first"] < 6 || starts["second"] < 6 {
		t.Errorf("starts %v, want about as many of each", starts)
	}
}

func unservedLane(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	unserved, run := newRun(limited("api"), onQueue("other")), newRun(limited("api"))
	f.enqueue(unserved)
	f.enqueue(run)
	f.wantAdmitted("the place is kept for the one that came first")
	f.advance(2 * time.Second)
	claims := f.wantAdmitted("its worker does not come", run)
	next := newRun(limited("api"))
	f.enqueue(next)
	claims.end(success())
	claims = f.wantAdmitted("for a while the lane is passed by", next)
	a := f.admit(1, "other")
	f.wantIDs("full", admittedAll{a}.ids())
	claims.end(success())
	a = f.admit(1, "other")
	f.wantIDs("its worker has come", admittedAll{a}.ids(), unserved)
	a.end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}

func wokenByRelease(_ *testing.T, f *fixture) {
	if f.backend.Deaf {
		return
	}
	f.declareLimits(semaphore("api", 1))
	f.enqueue(newRuns(100, limited("api"))...)
	held := f.admit(1)
	f.woken(1, func() {
		held.end(success())
		held = f.admit(1)
	})
}

// txLimits enqueues limited runs through a transaction, alone, beside others, and with
// a key that an earlier one holds.
func txLimits(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), store.Limit{Name: "api", Kind: store.LimitTokenBucket, Max: 10, Period: time.Second, Burst: 10})
	first := newRun(limited("tenant=acme", "api*2"))
	keyed := newRun(limited("tenant=keyed"), with(unique("k")))
	enqueue := func(tx Transaction) {
		f.enqueueIn(tx, first)
		f.enqueueIn(tx, newRun(limited("tenant=other")), newRun(), keyed)
		f.passed(t, tx, keyed.ID, newRun(limited("tenant=acme", "api"), with(replacing("k"))))
		unknown := newRun(limited("unheard-of"))
		if _, err := tx.Enqueue(f.ctx, unknown); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a limit that is not there answered %v, want ErrInvalid", err)
		}
	}
	tx := f.begin()
	enqueue(tx)
	tx.Rollback()
	if got := f.admit(10); len(got.runs) != 0 {
		t.Errorf("%d runs of a transaction that rolled back were admitted", len(got.runs))
	}
	tx = f.begin()
	enqueue(tx)
	f.commit(tx)
	if got := f.admit(10); len(got.runs) != 2 {
		t.Errorf("%d runs were admitted, want one of each tenant", len(got.runs))
	}
	if counts, err := f.store.Counts(f.ctx); err != nil || counts[store.Pending].N != 2 {
		t.Errorf("%d runs are pending, want 2: %v", counts[store.Pending].N, err)
	}
}
