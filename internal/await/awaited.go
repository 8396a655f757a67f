package await

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

const (
	// awaitedMost bounds the runs that a worker remembers as awaited.
	awaitedMost = 10_000
	// awaitedFor is how long it does without being told again.
	awaitedFor = time.Minute
)

// Awaited are the runs whose end somebody waits for, so that it is announced.
// Nobody waits for most runs: the counter keeps a settle from taking the mutex.
type Awaited struct {
	number atomic.Int64 // of runs
	mu     sync.Mutex
	until  map[store.RunID]time.Duration // on the worker's clock
	swept  time.Duration                 // when the map was last gone through
}

// Add remembers a run. Beyond the bound it does not: who waits looks by itself.
func (a *Awaited) Add(id store.RunID, now time.Duration) {
	if id == (store.RunID{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[store.RunID]time.Duration{}
	}
	a.sweep(now)
	if _, known := a.until[id]; known || len(a.until) < awaitedMost {
		a.until[id] = now + awaitedFor
	}
	a.number.Store(int64(len(a.until)))
}

// sweep forgets what has not been awaited for long, now and then.
func (a *Awaited) sweep(now time.Duration) {
	if now-a.swept < awaitedFor/4 {
		return
	}
	a.swept = now
	for id, until := range a.until {
		if until < now {
			delete(a.until, id)
		}
	}
	a.number.Store(int64(len(a.until)))
}

// Has reports whether the end of a run is to be announced.
func (a *Awaited) Has(id store.RunID, now time.Duration) bool {
	if a.number.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	return a.until[id] > now
}
