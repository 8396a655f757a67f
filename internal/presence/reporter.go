package presence

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

const (
	// leastEvery is the interval of the reports of a small fleet.
	leastEvery = 20 * time.Second
	// mostReports bounds the reports of a second of the whole fleet.
	mostReports = 50
	// jitter spreads each pause.
	jitter = 0.2
	// lastWithin bounds the reports of a worker that stops.
	lastWithin = 2 * time.Second
	// patience is how many failures in a row a report takes its figures through. A store
	// that refuses them would otherwise not learn that the worker is alive.
	patience = 10
)

// Config says what a Reporter reports, and of whom. Every field must be set.
type Config struct {
	Worker store.WorkerID
	// State is the worker at this moment. The Reporter sets Every.
	State func() store.Presence
	Tally *observe.Tally
	// Timeout bounds one call of the store.
	Timeout time.Duration
	Random  func() float64 // in [0, 1)
	// Failed is called when a report failed. It will be repeated.
	Failed func(ctx context.Context, err error)
	// Reachable reports whether the store has answered lately.
	Reachable func() bool
}

// Reporter reports one worker. A report that failed is repeated with its number and its
// figures until the store has answered, so that nothing is counted twice.
type Reporter struct {
	stats   store.Stats
	config  Config
	wake    chan struct{}
	number  int64               // of the last report
	pending *store.WorkerReport // its outcome is unknown
	failed  int                 // in a row
	every   time.Duration
}

// New returns a Reporter. Nothing is started.
func New(stats store.Stats, config Config) *Reporter {
	return &Reporter{stats: stats, config: config, wake: make(chan struct{}, 1), every: leastEvery}
}

// Wake makes the next report come immediately.
func (r *Reporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run reports until ctx ends, and then, if the store can be reached, that the worker has
// stopped.
func (r *Reporter) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.leave(context.WithoutCancel(ctx))
			return
		case <-timer.C:
		case <-r.wake:
		}
		timer.Reset(r.spread(r.report(ctx)))
	}
}

// report sends one report and returns the pause to the next one.
func (r *Reporter) report(ctx context.Context) time.Duration {
	if r.pending == nil {
		r.number++
		r.pending = &store.WorkerReport{Worker: r.config.Worker, Number: r.number, Did: r.config.Tally.Take()}
	}
	if err := r.send(ctx); err != nil {
		if r.failed++; r.failed >= patience {
			r.pending.Did = nil
		}
		r.config.Failed(ctx, err)
		return r.every / 4
	}
	return r.every
}

// send sends the pending report, with the worker's state at this moment.
func (r *Reporter) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	r.pending.Presence = r.config.State()
	r.pending.Presence.Every = store.Duration(r.every)
	shared, err := r.stats.ReportWorker(ctx, *r.pending)
	if err != nil {
		return err
	}
	r.pending, r.failed = nil, 0
	r.every = max(leastEvery, time.Duration(shared.Alive)*time.Second/mostReports)
	r.config.Tally.SetShared(shared)
	return nil
}

// leave reports that the worker has stopped, after what is pending.
func (r *Reporter) leave(ctx context.Context) {
	if !r.config.Reachable() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastWithin)
	defer cancel()
	if r.pending != nil && r.send(ctx) != nil {
		return
	}
	r.number++
	r.pending = &store.WorkerReport{Worker: r.config.Worker, Number: r.number, Did: r.config.Tally.Take(), Stopped: true}
	if err := r.send(ctx); err != nil {
		r.config.Failed(ctx, err)
	}
}

func (r *Reporter) spread(pause time.Duration) time.Duration {
	return time.Duration(float64(pause) * (1 - jitter + 2*jitter*r.config.Random()))
}
