package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The leases, and the runs, of one Reclaim call, at most. After an error there
// are half as many runs, down to one: maybe there were more than a call has time
// for.
const (
	reclaimLimit = 10
	reclaimRuns  = 2000
	// reclaimCalm is the least pause before a call that the end of an outage causes.
	reclaimCalm = 100 * time.Millisecond
)

// reclaimLoop reclaims what dead workers left, until ctx ends. Every worker
// runs it, busy or not. It reads even while nothing may be reclaimed: when a lease is about
// to expire that its owner should have renewed, the worker must know whether writes work, and
// a worker without a lease to judge by creates one. After an outage it reads immediately: the
// answer shows whether commits may have been lost.
func (w *Worker) reclaimLoop(ctx context.Context) {
	c := w.config
	every := min(c.PollInterval, c.Terms.Duration/4)
	pause, runs, calm := w.jittered(every), reclaimRuns, time.Duration(0)
	for w.sleepUnless(ctx, pause, w.back) {
		if !w.sleep(ctx, calm-c.Elapsed()) { // calls that fail now and then are no reason to ask each time
			return
		}
		calm = c.Elapsed() + reclaimCalm
		pause = w.jittered(every)
		if w.unreachable() { // another call finds out that the store is back
			continue
		}
		done, err := w.reclaim(ctx, runs)
		switch {
		case err != nil:
			w.warn(ctx, "reclaim.failed", "reclaim failed, will be retried", err)
			runs = max(runs/2, 1)
			continue
		case len(done.Runs) > 0 && (done.Leases == reclaimLimit || len(done.Runs) >= runs):
			pause, runs = 0, min(2*runs, reclaimRuns)
		case done.Soon:
			pause = min(pause, c.Terms.Duration/4, w.proveWrites(ctx, pause))
		}
		w.reclaimed(ctx, done)
		w.passedOver("reclaim", done.SetAside)
	}
}

// reclaim makes one call of the store, which takes nothing as long as nothing
// may be taken.
func (w *Worker) reclaim(ctx context.Context, runs int) (store.ReclaimResult, error) {
	c, h := w.config, &w.health
	sent := c.Elapsed()
	request := store.ReclaimRequest{MaxCrashes: c.MaxCrashes, Limit: reclaimLimit, Runs: runs, Ahead: c.Terms.Duration / 2}
	h.mu.Lock()
	request.Server = h.server
	horizon, may := h.takeover.Horizon(sent)
	h.mu.Unlock()
	if request.Horizon = horizon; !may || w.settler.owes() { // its own outcomes first, after an outage
		request.Limit = 0
	}
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	done, err := w.store.Reclaim(bounded, request)
	w.observeWrite(sent, len(done.Runs), err)
	w.observeFit(err)
	if err != nil {
		return done, err
	}
	w.settler.keep(done.Server != 0)
	if w.answeredBy(done.Server) {
		c.Logger.Warn("another server of the database answers, which may lack what was committed last: outcomes are verified, and jobs declared again", "event", "store.replaced")
		w.settler.verify()
		poke(w.replaced)
	}
	h.mu.Lock()
	jump := h.takeover.Seen(c.Elapsed(), done.Now)
	h.mu.Unlock()
	if jump > 0 {
		c.Logger.Warn("the store's clock jumped forward; expired leases are left alone for a while", "event", "clock.jumped", "by", jump.String())
	}
	return done, nil
}

// proveWrites makes a small write, unless this worker has written a moment ago,
// and returns the pause until leases may be reclaimed, or the given one.
func (w *Worker) proveWrites(ctx context.Context, pause time.Duration) time.Duration {
	h, sent := &w.health, w.config.Elapsed()
	h.mu.Lock()
	fresh := h.takeover.Unwritten(sent) < h.takeover.Gap/4 && !h.refused
	h.mu.Unlock()
	if !fresh {
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		err := w.store.Touch(bounded, w.id)
		cancel()
		if w.observeWrite(sent, 1, err); err != nil {
			w.warn(ctx, "store.read_only", "the store answers but accepts no writes; expired leases are left alone", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest := h.takeover.Rest(w.config.Elapsed()); rest > 0 {
		return min(pause, rest)
	}
	return pause
}

// resting is for how long this worker leaves expired leases alone.
func (w *Worker) resting() time.Duration {
	w.health.mu.Lock()
	defer w.health.mu.Unlock()
	return w.health.takeover.Resting(w.config.Elapsed())
}

// reclaimed logs what was reclaimed and wakes the poller.
func (w *Worker) reclaimed(ctx context.Context, done store.ReclaimResult) {
	for _, run := range done.Runs {
		w.observeReclaimed(run)
		log := w.config.Logger.With("run", run.ID.String(), "job", run.Job, "from", run.Worker, "crash_count", run.CrashCount)
		switch run.State {
		case Dead:
			log.Error("run is dead: its worker crashed", "event", "run.dead_by_crash")
			poke(w.deaths)
			w.announceEnd(ctx, run.ID, w.config.Elapsed())
		case Cancelled:
			log.Info("run cancelled as requested: the lease of its worker expired", "event", "run.cancelled")
			w.announceEnd(ctx, run.ID, w.config.Elapsed())
		default:
			log.Warn("run reclaimed: the lease of its worker expired", "event", "run.reclaimed", "isolated", run.Lane < 0)
		}
	}
	if len(done.Runs) > 0 {
		w.wake()
	}
}
