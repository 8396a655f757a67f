package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/internal/await"
	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/poller"
	"github.com/durable-worker/durable-worker/store"
)

// Worker claims runs and executes them. Create it with NewWorker, give it
// handlers with Register, then call Run, once.
type Worker struct {
	store  Store
	config WorkerConfig
	counts observe.Hooks // of config.Tally, which neither block nor panic
	id     store.WorkerID

	mu        sync.Mutex
	jobs      map[string]registration // not changed once Run has begun
	aliases   map[string]string       // old name → name; likewise
	limits    map[string]store.Limit  // likewise
	schedules []store.Schedule
	faults    []error

	keeper         *heartbeat.Keeper
	poller         *poller.Poller[*execution]
	claimer        claimer
	settler        settler
	recorder       *stepping.Recorder
	releaser       *stepping.Releaser
	hurry          chan struct{}
	cancelRequests chan struct{} // signals that the cancellation of runs in hand may have been requested
	changes        chan struct{} // signals that schedules may have changed; they are evaluated at most once a poll interval
	back           chan struct{} // signals that the store answers again
	deaths         chan struct{} // signals that a run of this worker has died
	replaced       chan struct{} // signals that another server answers: what was declared may be gone

	executors executors
	inFlight  inFlight     // claims in hand
	stuck     atomic.Int64 // handlers that were given up and whose slots were given to others
	phase     atomic.Int32 // see the constants
	listens   atomic.Bool  // the store reports changes immediately
	named     atomic.Bool  // its wake-ups name the lanes in which runs are due
	health    storeHealth
	asides    asides
	failures  failureQueue
	awaited   await.Awaited
	waits     await.Schedules
}

const (
	phaseNew int32 = iota
	phaseStarting
	phaseWorking
	phaseDraining
	phaseStopped
)

// Faults returns what Run would refuse, all together, or nil.
func (w *Worker) Faults() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.allFaults()
}

// allFaults is Faults; w.mu is held.
func (w *Worker) allFaults() error {
	faults := append([]error{w.config.validate()}, w.faults...)
	if w.store == nil {
		faults = append(faults, errors.New("the store is nil"))
	}
	faults = append(faults, w.aliasFaults()...)
	faults = append(faults, w.deathFaults()...)
	if len(w.jobs) == 0 {
		faults = append(faults, errors.New("no job is registered: call durable.Register before Worker.Run"))
	}
	return errors.Join(faults...)
}

// begin starts the only tenure of the worker, unless something is wrong. From then on,
// registrations are refused.
func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase.Load() != phaseNew {
		return errors.New("durable: Worker.Run was called twice: create a new Worker")
	}
	if err := w.allFaults(); err != nil {
		return fmt.Errorf("%w worker: %w", ErrInvalid, err)
	}
	w.health.init(w.config.Terms)
	w.phase.Store(phaseStarting)
	return nil
}

// refuseLate reports whether the tenure has begun. A declaration after that is refused,
// because the worker reads declarations without a lock. It does not panic: one late
// declaration must not end all handlers of the process. w.mu is held.
func (w *Worker) refuseLate(what string) bool {
	if w.phase.Load() == phaseNew {
		return false
	}
	fault := errors.New(what + " after Worker.Run had begun")
	w.faults = append(w.faults, fault)
	w.config.Logger.Error("refused", "event", "worker.misuse", "error", fault)
	return true
}

// StopNow cancels the contexts of running handlers immediately and hands their runs back: it
// ends the time that a drain gives them. If you call it before the drain has begun, it
// applies to the next drain.
func (w *Worker) StopNow() { poke(w.hurry) }

// wake makes the poller claim immediately, without reading the heads first.
func (w *Worker) wake() {
	w.claimer.wakeUps.AddAnywhere()
	w.poller.Wake()
}

// sleep waits for d and reports false when ctx ended.
func (w *Worker) sleep(ctx context.Context, d time.Duration) bool {
	return w.sleepUnless(ctx, d, nil)
}

// sleepUnless is sleep that a signal ends.
func (w *Worker) sleepUnless(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-signal:
		return true
	}
}

// jittered spreads a pause by the poll's jitter ratio.
func (w *Worker) jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + max(w.config.PollJitter, 0)*(2*w.config.Random()-1)))
}
