package durable

import (
	"context"
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

// awaited are the runs whose end somebody waits for, so that it is announced.
// Nobody waits for most runs: the counter keeps a settle from taking the mutex.
type awaited struct {
	number atomic.Int64 // of runs
	mu     sync.Mutex
	until  map[RunID]time.Duration // on the worker's clock
	swept  time.Duration           // when the map was last gone through
}

// add remembers a run. Beyond the bound it does not: who waits looks by itself.
func (a *awaited) add(id RunID, now time.Duration) {
	if id == (RunID{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[RunID]time.Duration{}
	}
	a.sweep(now)
	if _, known := a.until[id]; known || len(a.until) < awaitedMost {
		a.until[id] = now + awaitedFor
	}
	a.number.Store(int64(len(a.until)))
}

// sweep forgets what has not been awaited for long, now and then.
func (a *awaited) sweep(now time.Duration) {
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

func (a *awaited) has(id RunID, now time.Duration) bool {
	if a.number.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	return a.until[id] > now
}

// announceEnd tells those who wait that a run may have ended. A run that is to
// be executed again is announced too: the store alone knows whether it is.
func (w *Worker) announceEnd(ctx context.Context, id RunID) {
	if !w.awaited.has(id, w.config.Elapsed()) {
		return
	}
	if err := w.store.Announce(ctx, store.Signal{Kind: store.RunEnded, Run: id}); err != nil {
		w.warn(ctx, "announcing the end of a run failed, who waits for it will look", err)
	}
}
