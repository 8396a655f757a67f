package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

// reclaimLimit bounds the leases of one Reclaim call.
const reclaimLimit = 10

// reclaimLoop takes back what dead workers left, until ctx ends. Every worker
// runs it, busy or not.
func (w *Worker) reclaimLoop(ctx context.Context) {
	c := w.config
	var mu sync.Mutex
	machine := protocol.Takeover{
		Hold: min(c.Terms.Duration, 10*time.Second), OutageHold: min(c.Terms.Duration/3, 10*time.Second), Slack: 2 * time.Second,
	}
	w.link.mu.Lock()
	w.link.recovered = func() { // called under the link's lock: only takes note
		mu.Lock()
		defer mu.Unlock()
		machine.Recovered(c.Elapsed())
	}
	w.link.mu.Unlock()
	every := min(c.PollInterval, c.Terms.Duration/4)
	pause := w.jittered(every)
	for w.sleep(ctx, pause) {
		pause = w.jittered(every)
		mu.Lock()
		horizon, may := machine.Horizon(c.Elapsed())
		mu.Unlock()
		if !may || w.cutOff() { // another call finds out that the store is back, and begins a hold
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		done, err := w.store.Reclaim(bounded, ReclaimRequest{MaxCrashes: c.MaxCrashes, Limit: reclaimLimit, Horizon: horizon})
		cancel()
		w.contact(err)
		if err != nil {
			w.warn(ctx, "reclaim failed, will be tried again", err)
			continue
		}
		mu.Lock()
		jump := machine.Seen(c.Elapsed(), done.Now)
		mu.Unlock()
		if jump > 0 {
			c.Logger.Warn("the store's clock jumped forward; expired leases are left alone for a while", "by", jump.String())
		}
		if w.reclaimed(ctx, done); done.Leases == reclaimLimit && len(done.Runs) > 0 {
			pause = 0
		}
	}
}

// reclaimed tells people, and the poller, what was taken back.
func (w *Worker) reclaimed(ctx context.Context, done Reclaim) {
	for _, run := range done.Runs {
		w.traceReclaimed(run)
		log := w.config.Logger.With("run", run.ID.String(), "job", run.Job, "from", run.Worker, "crash_count", run.CrashCount)
		switch run.State {
		case Dead:
			log.Error("run is dead: its worker crashed")
			w.announceEnd(ctx, run.ID)
		case Cancelled:
			log.Info("run cancelled as it was asked: the lease of its worker ran out")
			w.announceEnd(ctx, run.ID)
		default:
			log.Warn("run reclaimed: the lease of its worker ran out", "isolated", run.Lane < 0)
		}
	}
	if len(done.Runs) > 0 {
		w.wake()
	}
}
