package observe

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Take returns what was done since the last call, ordered by queue and job. Who calls
// it has to keep it until it is stored: it is not returned again.
func (t *Tally) Take() []store.LaneTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	var did []store.LaneTally
	for key, counts := range t.lanes.all() {
		now := counts.tally()
		if since := now.Since(t.reported[key]); since != (store.Tally{}) {
			t.reported[key] = now
			did = append(did, store.LaneTally{Queue: key.queue, Job: key.job, Tally: since})
		}
	}
	slices.SortFunc(did, func(a, b store.LaneTally) int { return compareKeys(laneKey{a.Queue, a.Job}, laneKey{b.Queue, b.Job}) })
	return did
}

// Totals are what was done since the program has begun.
type Totals struct {
	Lanes  []LaneTotals // by queue and job
	Calls  []CallTotals // of the store, by verb
	Locks  []LockTotals // by name
	Claims Classes      // by the number of runs that they got
	// StepWrites are the times from the end of a step until it was recorded; nanoseconds.
	StepWrites Classes
	Released   int64 // runs that were made due because their inputs had come
	Lost       map[LossKind]int64
	Degraded   time.Duration // in which lockers could not ask their store
	Alive      int64         // workers, as the store answered to the last report; zero: not known
}

// LaneTotals are of one job on one queue.
type LaneTotals struct {
	Queue, Job string
	Enqueued   int64
	Outcomes   map[store.OutcomeKind]int64 // that the store has taken; and crashes that this process has found
	Refused    int64                       // outcomes that came too late: the lease was lost
	Executing  int64
	Wait, Took Classes              // nanoseconds
	Steps      map[StepResult]int64 // executions of steps; nil: none
}

// CallTotals are of one verb of the store's: of the calls that failed, or of the others.
type CallTotals struct {
	Verb   string
	Failed bool
	Took   Classes // nanoseconds
}

// LockTotals are of one named lock.
type LockTotals struct {
	Name                            string
	Granted, Refused, Lost, Expired int64
	Waiting                         int64
	Wait, Hold                      Classes // nanoseconds
}

// Classes are values counted by class.
type Classes struct {
	Bounds []int64 // upper bounds of all classes but the last, which has none
	Counts []int64 // one more than Bounds
	Sum    int64   // of the values
}

func (c *classes) read() Classes {
	r := Classes{Bounds: c.bounds, Counts: make([]int64, len(c.counts)), Sum: c.sum.Load()}
	for i := range c.counts {
		r.Counts[i] = c.counts[i].Load()
	}
	return r
}

// Totals returns what was done until now.
func (t *Tally) Totals() Totals {
	totals := Totals{Claims: t.claims.read(), StepWrites: t.stepWrites.read(), Released: t.released.Load(), Lost: map[LossKind]int64{}, Degraded: time.Duration(t.degraded.Load()), Alive: t.alive.Load()}
	for i, kind := range lossKinds {
		totals.Lost[kind] = t.losses[i].Load()
	}
	lanes, calls, locks := t.lanes.all(), t.calls.all(), t.locks.all()
	for _, key := range slices.SortedFunc(maps.Keys(lanes), compareKeys) {
		totals.Lanes = append(totals.Lanes, lanes[key].totals(key))
	}
	for key, took := range calls {
		totals.Calls = append(totals.Calls, CallTotals{Verb: key.verb, Failed: key.failed, Took: took.read()})
	}
	slices.SortFunc(totals.Calls, func(a, b CallTotals) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(sign(a.Failed), sign(b.Failed)))
	})
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		c := locks[name]
		totals.Locks = append(totals.Locks, LockTotals{Name: name, Granted: c.granted.Load(), Refused: c.refused.Load(), Lost: c.lost.Load(),
			Expired: c.expired.Load(), Waiting: c.waiting.Load(), Wait: c.wait.read(), Hold: c.hold.read()})
	}
	return totals
}

func sign(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

func compareKeys(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.job, b.job))
}

func (c *LaneCounts) totals(key laneKey) LaneTotals {
	r := LaneTotals{Queue: key.queue, Job: key.job, Enqueued: c.enqueued.Load(), Refused: c.refused.Load(), Executing: c.executing.Load(),
		Outcomes: map[store.OutcomeKind]int64{store.Crash: c.crashed.Load()}, Wait: c.wait.read(), Took: c.took.read(), Steps: c.stepTotals()}
	for _, kind := range store.SettledKinds() {
		r.Outcomes[kind] = c.outcomes[kind].Load()
	}
	return r
}

// tally is what a report says.
func (c *LaneCounts) tally() store.Tally {
	r := store.Tally{
		Enqueued: c.enqueued.Load(), Succeeded: c.outcomes[store.Success].Load(), Failed: c.outcomes[store.Failure].Load() + c.outcomes[store.Misfit].Load(),
		Dead: c.outcomes[store.Death].Load(), Cancelled: c.outcomes[store.Cancellation].Load(), Crashed: c.crashed.Load(),
		Busy: store.Duration(c.took.sum.Load()),
	}
	for i := range store.Buckets {
		r.Wait[i], r.Took[i] = c.wait.counts[i].Load(), c.took.counts[i].Load()
	}
	return r
}
