package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// releaser makes runs due whose inputs have come.
type releaser struct {
	signal chan struct{}

	mu    sync.Mutex
	looks []store.Look // at runs that have just begun to wait
}

// releaseLimit is how many notices one call takes, and mostLooks how many looks are kept: those
// that are dropped have a notice, which a later call takes.
const (
	releaseLimit = 500
	mostLooks    = 10_000
)

// look has it found out whether the inputs are there that runs have begun to wait for.
func (r *releaser) look(looks []store.Look) {
	if len(looks) == 0 {
		return
	}
	r.mu.Lock()
	if len(r.looks)+len(looks) <= mostLooks {
		r.looks = append(r.looks, looks...)
	}
	r.mu.Unlock()
	poke(r.signal)
}

// take returns the next looks.
func (r *releaser) take() []store.Look {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.looks), releaseLimit)
	looks := r.looks[:n:n]
	if r.looks = r.looks[n:]; len(r.looks) == 0 {
		r.looks = nil
	}
	return looks
}

// releaseLoop releases runs until ctx ends: when a signal says that notices are left, when a run
// of this worker has begun to wait, when the next notice is due, and at least as often as expired
// leases are looked for.
func (w *Worker) releaseLoop(ctx context.Context) {
	every := min(w.config.PollInterval, w.config.Terms.Duration/4)
	pause := w.jittered(every)
	for w.sleepUnless(ctx, pause, w.releaser.signal) {
		pause = w.jittered(every)
		if w.unreachable() {
			continue
		}
		looks := w.releaser.take()
		result, err := w.release(ctx, looks)
		switch {
		case err != nil:
			w.warn(ctx, "release.failed", "releasing runs failed, will be retried", err)
			w.releaser.look(looks)
			w.sleep(ctx, w.jittered(100*time.Millisecond))
		case result.Taken >= releaseLimit || len(looks) == releaseLimit:
			pause = 0
		case result.Next >= 0:
			pause = min(pause, max(result.Next, time.Millisecond))
		}
	}
}

func (w *Worker) release(ctx context.Context, looks []store.Look) (store.ReleaseResult, error) {
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	result, err := w.store.Release(bounded, store.ReleaseRequest{Look: looks, Limit: releaseLimit})
	w.observeCall(err)
	return result, err
}
