package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/saturate"
	"github.com/durable-worker/durable-worker/store"
)

// Retention is how long the job's ended runs are kept, whatever their final state:
// at least a second, or KeepForever. Zero, the default, leaves it to the worker
// (WorkerConfig.Retention and RetentionDead). It holds for all runs of the job
// from when a worker declares it, also for those that have ended before.
func Retention(d time.Duration) Option {
	return Option{"Retention", onlyJob, func(p *policy) {
		if p.retention = d; d < 0 {
			p.retention = store.KeepForever
		}
	}}
}

const (
	// sweepLimit bounds the runs of one step, and so how long a step takes.
	sweepLimit = 1000
	// sweepMinPause is the least pause after a step that found nothing to do, so
	// that a full pass does not take all the bandwidth of the disk.
	sweepMinPause = 250 * time.Millisecond
	// sweepDutyFactor is how many times as long as a step took the sweep pauses after it,
	// so that it does not disturb the load (a duty cycle of 5 %). It still deletes some
	// thousands of runs a second, as measured.
	sweepDutyFactor = 19
	// sweepBehind is the number of intervals after which a sweep that has not reached the
	// end has fallen behind. From then on it pauses only for as long as it works.
	sweepBehind = 5
)

// sweepLoop deletes what is old enough, until ctx ends. All workers run it; the
// store lets one of them sweep at a time. A sweep works a twentieth of the time, or half
// of it where that is not enough: it never takes more than half of one connection.
func (w *Worker) sweepLoop(ctx context.Context) {
	c := w.config
	request := store.SweepRequest{By: w.id.Instance, Retention: c.Retention, RetentionDead: c.RetentionDead, RetentionAudit: c.RetentionAudit, Limit: sweepLimit}
	pause := w.jittered(c.SweepInterval)
	deleted := 0
	var since time.Duration // monotonic time when the sweep under way began; zero: none is
	for w.sleep(ctx, pause) {
		pause = w.jittered(c.SweepInterval)
		if w.unreachable() {
			continue
		}
		began := c.Elapsed()
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		swept, err := w.store.Sweep(bounded, request)
		cancel()
		w.observeCall(err)
		if err != nil {
			w.warn(ctx, "sweep.failed", "sweep failed, will be retried", err)
			continue
		}
		w.returned(swept)
		w.passedOver("sweep", swept.SetAside)
		deleted += swept.Deleted
		if swept.Busy || swept.Done {
			if deleted > 0 {
				c.Logger.Info("ended runs deleted, kept long enough", "event", "sweep.deleted", "runs", deleted)
			}
			deleted, since = 0, 0
			continue
		}
		if since == 0 {
			since = began
		}
		pause = w.sweepPause(&swept, c.Elapsed()-began, began-since)
	}
}

// sweepPause is the pause after a step that took so long, of a sweep that has
// been under way for so long.
func (w *Worker) sweepPause(swept *store.SweepResult, took, underway time.Duration) time.Duration {
	pause := sweepDutyFactor * took
	if underway > saturate.Times(sweepBehind, w.config.SweepInterval) {
		pause = took
	}
	if swept.Deleted+len(swept.Returned)+swept.Mended == 0 {
		pause = max(pause, sweepMinPause)
	}
	return pause
}

// returned logs runs that were handed back and wakes the poller.
func (w *Worker) returned(swept store.SweepResult) {
	for _, run := range swept.Returned {
		w.config.Logger.Warn("requeued a running run whose lease row is missing", "event", "sweep.requeued", "run", run.ID.String(), "job", run.Job,
			"from", run.Worker, "state", run.State.String())
	}
	if swept.Mended > 0 {
		w.config.Logger.Warn("requeued pending runs that were in no line", "event", "sweep.mended", "runs", swept.Mended)
	}
	if swept.Repaired > 0 {
		w.config.Logger.Error("repaired limits, which should never be necessary: please report it", "event", "sweep.limits_repaired", "repaired", swept.Repaired)
	}
	if swept.Mended+swept.Repaired+len(swept.Returned) > 0 {
		w.wake()
	}
}
