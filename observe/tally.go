package observe

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Tally adds up what workers, clients and lockers do. A worker fills the one of
// WorkerConfig.Tally by itself; give Hooks to the clients and lockers that it is to
// count as well. Several workers of a program may share one. Make it with NewTally.
// Its methods may be called from many goroutines.
//
// It counts by job and queue. The first store.MaxReportLanes pairs are counted
// apart, and all others together under store.OtherLanes; locks likewise, by name.
type Tally struct {
	lanes family[laneKey, LaneCounts]
	calls family[callKey, classes]
	locks family[string, lockCounts]

	claims     *classes     // runs of each claim
	stepWrites *classes     // nanoseconds
	released   atomic.Int64 // runs whose inputs had come
	losses     [len(lossKinds)]atomic.Int64
	alive      atomic.Int64 // workers, as the store has last answered
	ahead      atomic.Int64 // of the store's clock over this machine's, nanoseconds

	degraded atomic.Int64 // time in which lockers could not ask their store, nanoseconds

	mu       sync.Mutex              // guards reported
	reported map[laneKey]store.Tally // what Take has returned
}

const (
	callsMost = 40  // verbs, and failed ones; there are twenty
	locksMost = 100 // names of locks
)

// NewTally returns an empty Tally.
func NewTally() *Tally {
	t := &Tally{claims: newClasses(claimBounds()), stepWrites: newClasses(callBounds()), reported: map[laneKey]store.Tally{}}
	t.lanes.init(store.MaxReportLanes, laneKey{store.OtherLanes, store.OtherLanes}, t.newLane)
	t.calls.init(callsMost, callKey{verb: store.OtherLanes}, func() *classes { return newClasses(callBounds()) })
	t.locks.init(locksMost, store.OtherLanes, newLockCounts)
	return t
}

// family is counters by a key, the first so many apart and the others together.
type family[K comparable, C any] struct {
	known atomic.Pointer[map[K]*C] // never changed once it is there
	mu    sync.Mutex               // guards the making of one
	most  int
	rest  K
	make  func() *C
}

func (f *family[K, C]) init(most int, rest K, create func() *C) {
	f.most, f.rest, f.make = most, rest, create
	f.known.Store(&map[K]*C{})
}

// of returns the counters of a key.
func (f *family[K, C]) of(key K) *C {
	if counts := (*f.known.Load())[key]; counts != nil {
		return counts
	}
	return f.add(key)
}

func (f *family[K, C]) add(key K) *C {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := *f.known.Load()
	if len(known) >= f.most && known[key] == nil {
		key = f.rest
	}
	if counts := known[key]; counts != nil {
		return counts
	}
	more := maps.Clone(known)
	more[key] = f.make()
	f.known.Store(&more)
	return more[key]
}

// all returns the counters by key. The map must not be changed.
func (f *family[K, C]) all() map[K]*C { return *f.known.Load() }

// laneKey names what is counted apart.
type laneKey struct{ queue, job string }

// LaneCounts count the executions of one job on one queue, see Tally.Lane.
type LaneCounts struct {
	of *Tally

	enqueued, crashed, refused, executing atomic.Int64

	outcomes   [int(store.Misfit) + 1]atomic.Int64 // by kind
	steps      [stepResults]atomic.Int64           // by result
	wait, took *classes                            // nanoseconds
}

func (t *Tally) newLane() *LaneCounts {
	return &LaneCounts{of: t, wait: newClasses(runBounds()), took: newClasses(runBounds())}
}

// callKey is a verb of the store's, and how the calls ended.
type callKey struct {
	verb   string
	failed bool
}

// classes count values by class, and add them up.
type classes struct {
	bounds []int64 // upper bounds of all classes but the last
	counts []atomic.Int64
	sum    atomic.Int64
}

func newClasses(bounds []int64) *classes {
	return &classes{bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

func (c *classes) add(value int64) {
	class := 0
	for class < len(c.bounds) && value > c.bounds[class] {
		class++
	}
	c.counts[class].Add(1)
	c.sum.Add(value)
}

// claimBounds are numbers of runs.
func claimBounds() []int64 { return []int64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000} }

// callBounds are of calls of the store.
func callBounds() (bounds []int64) {
	for _, us := range []int64{500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000} {
		bounds = append(bounds, us*int64(time.Microsecond))
	}
	return bounds
}

// runBounds are the bounds of the stored series.
func runBounds() (bounds []int64) {
	for _, bound := range store.BucketBounds() {
		bounds = append(bounds, int64(bound))
	}
	return bounds
}
