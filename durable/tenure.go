package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/poller"
	"github.com/durable-worker/durable-worker/store"
)

// NewWorker returns a worker of a store. Nothing is started, and you need not check anything
// here: Run reports what is wrong with the configuration.
func NewWorker(db Store, config WorkerConfig) *Worker {
	config = config.withDefaults()
	if config.Elapsed == nil {
		config.Elapsed = lease.Elapsed
	}
	if config.NewClaimID == nil {
		config.NewClaimID = lease.NewClaimID
	}
	if config.Random == nil {
		config.Random = rand.Float64
	}
	if config.SchedulingLatency == nil {
		config.SchedulingLatency = yielding(config.Elapsed)
	}
	if config.Process == nil {
		config.Process = &thisProcess
	}
	config.Middleware = slices.Clone(config.Middleware)
	w := &Worker{store: db, config: config, jobs: map[string]registration{}, aliases: map[string]string{}, limits: map[string]store.Limit{},
		hurry: make(chan struct{}, 1), cancelRequests: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		back: make(chan struct{}, 1), deaths: make(chan struct{}, 1), replaced: make(chan struct{}, 1), id: store.WorkerID{Name: config.Name, Instance: uuid.New()}}
	w.waits.Init()
	w.releaser = stepping.NewReleaser()
	w.failures.signal = make(chan struct{}, 1)
	w.counts = config.Tally.Hooks()
	if db != nil {
		w.store = observedStore{Store: db, w: w}
	}
	w.recorder = stepping.NewRecorder(stepping.Host{Store: w.store, Elapsed: config.Elapsed, Timeout: w.callTimeout,
		Pause: func(ctx context.Context, d time.Duration) { w.sleep(ctx, w.jittered(d)) }})
	return w
}

// StuckError says that handlers did not return although their contexts were cancelled. Their
// runs keep their lease and are executed elsewhere when it has expired; those whose attempt
// had timed out before are settled as failed.
type StuckError struct {
	Runs []RunID
}

// Error names the runs.
func (e *StuckError) Error() string {
	return fmt.Sprintf("handlers of %d runs ignored cancellation and were abandoned: %v", len(e.Runs), e.Runs)
}

// Run works until ctx ends, then drains: it stops claiming, lets handlers finish for
// DrainTimeout, cancels the contexts of the rest, and hands back the runs of those that
// return within CancelGrace. It returns when everything it started has returned: nil, an
// error that names every fault of the registrations and the configuration before anything was
// started, a *StuckError if handlers had to be abandoned, or an *UnsettledError if the store
// had not accepted all outcomes; errors.As finds either. While the
// store cannot be reached, Run waits and tries again. Once ctx has ended it returns within
// DrainTimeout, CancelGrace, the time that a claim under way may take (half a lease, 2 to 15
// s), CancelGrace again (at least a second) for outcomes to be written, and two seconds to
// report that it has stopped; outcomes that the store has not accepted by then are left to
// the leases.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.phase.Store(phaseStopped)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, w.config.PollInterval+time.Second) {
		err := w.declare(ctx)
		if err == nil {
			return w.work(ctx)
		}
		w.warn(ctx, "worker.registration_failed", "the store does not accept the worker's declaration, will be retried", err)
		if !w.sleep(ctx, w.jittered(pause)) {
			return nil
		}
	}
}

// work is one tenure: what is started here has ended when it returns.
func (w *Worker) work(ctx context.Context) error {
	c := w.config
	handlers, cancelHandlers := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelHandlers(nil)
	w.assemble(handlers)
	outer, stopOuter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOuter()
	reports, stopReports := context.WithCancel(outer)
	defer stopReports()
	reporter := w.newReporter()
	var keeping, settling, asking, reporting, telling sync.WaitGroup
	keeping.Go(func() { w.keeper.Run(outer) })
	keeping.Go(func() { w.serveCancelRequests(outer) })
	settling.Go(func() { w.settler.run(outer) })
	telling.Go(func() { w.reportFailures(outer) })
	reporting.Go(func() { reporter.Run(reports) })
	c.Process.join(w)
	defer c.Process.part(w)
	asking.Go(func() { w.poller.Run(ctx); w.claimer.resign(ctx); w.claimer.stop() })
	asking.Go(func() { w.reclaimLoop(ctx) })
	asking.Go(func() { w.releaseLoop(ctx) })
	asking.Go(func() { w.deathLoop(ctx) })
	asking.Go(func() { w.materializeLoop(ctx) })
	asking.Go(func() { w.declareLoop(ctx) })
	asking.Go(func() { w.sweepLoop(ctx) })
	asking.Go(func() { w.measureLoop(ctx) })
	if !c.NoListen {
		asking.Go(func() { w.listenLoop(ctx) })
	}
	w.phase.Store(phaseWorking)
	w.warnUnbounded()
	w.noteQueues()
	c.Logger.Info("worker started", "event", "worker.started", "worker", c.Name, "jobs", len(w.jobs), "max_concurrent_runs", c.MaxConcurrentRuns)

	<-ctx.Done()
	w.phase.Store(phaseDraining)
	w.passExpected()
	reporter.Wake()
	w.settler.lift()
	w.executors.drain()
	stuck := w.drain(cancelHandlers, asking.Wait)
	w.executors.close()
	overdue := time.AfterFunc(max(c.CancelGrace, time.Second), stopOuter)
	defer overdue.Stop()
	if w.inFlight.handOver(outer); len(stuck) == 0 {
		w.executors.all.Wait()
	}
	w.settler.close()
	settling.Wait()
	w.failures.close()
	telling.Wait()
	stopReports()
	reporting.Wait()
	stopOuter()
	keeping.Wait()
	c.Logger.Info("worker stopped", "event", "worker.stopped", "worker", c.Name)
	return w.runError(stuck)
}

// assemble makes the parts of a tenure. handlers is the parent of every handler's context.
func (w *Worker) assemble(handlers context.Context) {
	c := w.config
	w.keeper = heartbeat.New(observedRenewer{w}, heartbeat.Config{Terms: c.Terms, Elapsed: c.Elapsed, Random: c.Random, Logger: c.Logger, Latency: w.executors.schedulingLatency})
	w.claimer.init(handlers, w)
	w.settler.init(w)
	w.executors.init(w)
	w.poller = poller.New(poller.Config{
		Capacity: c.MaxConcurrentRuns, Batch: min(c.ClaimBatchSize, c.MaxConcurrentRuns), Interval: c.PollInterval,
		Jitter: max(c.PollJitter, 0), Linger: 5 * time.Millisecond, Elapsed: c.Elapsed, Random: c.Random,
	}, w.claimer.ask, w.executors.start)
}

// runError is what Run returns after a drain.
func (w *Worker) runError(stuck []RunID) error {
	var err error
	if len(stuck) > 0 {
		err = &StuckError{Runs: stuck}
	}
	switch unsettled := w.settler.unsettled; {
	case unsettled == nil:
		return err
	case err == nil:
		return unsettled
	default:
		return errors.Join(err, unsettled)
	}
}

// warnUnbounded names the jobs that nothing bounds.
func (w *Worker) warnUnbounded() {
	var names []string
	for name, r := range w.jobs {
		if r.info.Timeout == 0 {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		w.config.Logger.Warn("jobs without a timeout: a handler that hangs keeps its slot forever", "event", "worker.no_timeout", "jobs", names)
	}
}

// noteQueues names the jobs that this worker has, and whose queue it does not serve.
func (w *Worker) noteQueues() {
	var lanes []string
	for name, r := range w.jobs {
		if queue := r.info.Queue; !slices.ContainsFunc(w.config.Queues, func(q Queue) bool { return q.Name == queue }) {
			lanes = append(lanes, name+" on "+queue)
		}
	}
	if len(lanes) > 0 {
		slices.Sort(lanes)
		w.config.Logger.Info("jobs on queues that this worker does not serve: their runs wait for another worker", "event", "worker.other_queues", "jobs", lanes)
	}
}

// drain gives up the runs in hand and returns those whose handlers do not
// return. asked returns when no more can be added.
func (w *Worker) drain(cancelHandlers context.CancelCauseFunc, asked func()) (stuck []RunID) {
	c := w.config
	machine := protocol.Drain{Timeout: max(c.DrainTimeout, 0), Grace: max(c.CancelGrace, 0)}
	c.Logger.Info("worker draining", "event", "worker.draining", "worker", c.Name, "executing", w.inFlight.len(), "timeout", machine.Timeout.String())
	idle := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() { asked(); w.inFlight.wait(); close(idle) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	event := protocol.DrainEvent{Kind: protocol.DrainStop, Executing: 1}
	for {
		event.At = c.Elapsed()
		effects := machine.Step(event)
		if effects.CancelHandlers {
			c.Logger.Info("drain time is over, cancelling handlers", "event", "worker.drain_over", "executing", w.inFlight.len())
			cancelHandlers(ErrDraining)
		}
		if effects.Done {
			break
		}
		timer.Reset(max(effects.Wake-c.Elapsed(), 0))
		event = protocol.DrainEvent{Kind: protocol.DrainTick, Executing: 1}
		select {
		case <-idle:
			event.Executing = 0
		case <-w.hurry:
			event.Kind = protocol.DrainHurry
		case <-timer.C:
		}
	}
	stuck = w.inFlight.abandon()
	waiting.Wait()
	return stuck
}

// listenLoop keeps a listener up: wake-ups shorten sleeps, polling continues
// without them.
func (w *Worker) listenLoop(ctx context.Context) {
	pause := time.Duration(0)
	for w.sleep(ctx, pause) {
		began := w.config.Elapsed()
		err := w.store.ListenFor(ctx, w.claimer.serves, w.hear)
		if err != nil {
			w.warn(ctx, "worker.listen_failed", "listening for wake-ups failed, polling instead", err)
		}
		if pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second); w.config.Elapsed()-began > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		w.listens.Store(false)
		w.wake() // something may have come while no listener was up
		poke(w.changes)
	}
}

// hear handles a signal and ignores the kinds that a worker does not use.
func (w *Worker) hear(signal store.Signal) {
	if !w.listens.Swap(true) { // something may have come before the listener was up
		w.wake()
		poke(w.changes)
		w.releaser.Notice()
	}
	switch signal.Kind {
	case store.RunsDue:
		if signal.Due.Lane != 0 && !w.named.Load() {
			w.named.Store(true)
		}
		w.due(signal.Due)
	case store.RunAwaited:
		w.awaited.Add(signal.Run, w.config.Elapsed())
	case store.RunEnded:
		w.waits.Hear(signal.Run)
	case store.CancelsRequested:
		poke(w.cancelRequests)
	case store.NoticesLeft:
		w.releaser.Notice()
	default:
	}
}
