package durabletest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// LeaseDuration is how long the leases of a kit's workers last unless the test
// says otherwise: so much time passes before the runs of a worker that is gone
// are executed by another. It is longer than the default of durable, because
// workers check for expired leases several times within it.
const LeaseDuration = 10 * time.Minute

// Worker is a worker of a kit: a real one that the test can cut off from its
// store, freeze and kill.
type Worker struct {
	kit    *Kit
	worker *durable.Worker
	number uint64 // of the kit's workers, from 1
	config durable.WorkerConfig
	began  time.Time
	cancel context.CancelFunc
	// schedules that it declares; nil: all.
	schedules map[string]bool
	configure func(w *durable.Worker)
	changes   []func(*durable.WorkerConfig)
	ended     chan struct{} // closed when Run has returned err
	err       error

	mu      sync.Mutex // guards everything below
	link    link
	stood   time.Duration // the worker's clock when it was frozen
	changed chan struct{} // closed when link changes
	serves  store.Serves
	held    map[durable.RunID]struct{} // claimed and not settled
	claims  []lease.ClaimID            // that it was given runs under
	refused []durable.RunID
	crashed bool
}

// Worker starts a worker of the kit's store. configure registers handlers and
// schedules, as a program does. Each of changes may change the configuration
// that the kit has prepared: a name, one hour between polls (the store wakes
// workers, no run waits for a poll), LeaseDuration, no jitter, the default
// retry policy without its spread, and a log of warnings and errors that go test
// shows when the test fails. Elapsed is the kit's and must stay. What Worker.Run would refuse fails
// the test.
func (k *Kit) Worker(configure func(w *durable.Worker), changes ...func(*durable.WorkerConfig)) *Worker {
	k.t.Helper()
	w := k.launch(configure, changes, k.schedules)
	if err := w.worker.Faults(); err != nil {
		k.t.Fatalf("%s: %v", w.config.Name, err)
	}
	synctest.Wait()
	return w
}

// launch starts a worker, unless it is misconfigured.
func (k *Kit) launch(configure func(w *durable.Worker), changes []func(*durable.WorkerConfig), schedules map[string]bool) *Worker {
	w := &Worker{kit: k, began: time.Now(), ended: make(chan struct{}), changed: make(chan struct{}),
		held: map[durable.RunID]struct{}{}, schedules: schedules, configure: configure, changes: changes}
	k.mu.Lock()
	defer k.mu.Unlock()
	w.number = uint64(len(k.workers) + 1)
	w.config = durable.WorkerConfig{
		Name: fmt.Sprintf("worker-%d", w.number), PollInterval: time.Hour, PollJitter: -1,
		Terms: lease.Terms{Duration: LeaseDuration}, Retry: durable.Exponential(5*time.Second, time.Hour),
		Retention: store.KeepForever, RetentionDead: store.KeepForever, RetentionAudit: store.KeepForever, SweepInterval: time.Hour,
		Logger: slog.New(livingLog{k.log.Handler(), w}), Elapsed: w.elapsed, Random: w.random,
		Process: new(durable.Process),
	}
	for _, change := range changes {
		change(&w.config)
	}
	w.worker = durable.NewWorker(wire{k.Store, w}, w.config)
	configure(w.worker)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), workerKey{}, w))
	w.cancel = cancel
	if w.worker.Faults() != nil {
		cancel()
		return w
	}
	k.workers = append(k.workers, w)
	go func() {
		defer close(w.ended)
		w.err = w.worker.Run(ctx)
	}()
	return w
}

// workerKey finds in a handler's context the worker that executes it.
type workerKey struct{}

// workerOf returns the worker that executes the handler of ctx; nil: it is none of a kit.
func workerOf(ctx context.Context) *Worker {
	w, _ := ctx.Value(workerKey{}).(*Worker)
	return w
}

// link is the state of a worker's connection to its store, and of its clock.
type link int8

const (
	connected link = iota
	cut            // calls go nowhere
	frozen         // calls wait, and the worker's clock does not advance
	dead           // calls fail
	gone           // calls wait until the test ends, and then fail: the process has crashed
)

// Pause cuts the worker off from its store, as a broken network does, until
// Resume. Its handlers continue and its clock runs: before its leases end it ends
// the contexts of its handlers with lease.ErrLost, and what it writes is lost or,
// after Resume, refused.
func (w *Worker) Pause() { w.set(cut) }

// Freeze simulates, as far as possible here, a stopped process (SIGSTOP, a
// suspended machine), until Resume: the worker's clock does not advance, so that
// it takes its leases for valid forever, and its calls of the store wait, to be
// sent when it resumes. In this it differs from a real freeze: handlers
// execute, and timers of package time end, among them a run's timeout and the
// time limits of the worker's calls; in a real one they all do so at its end. A
// call that was already with the store when the process froze is not simulated.
func (w *Worker) Freeze() { w.set(frozen) }

// Resume ends a Pause or a Freeze. Within about a second the
// worker finds out which of its leases are lost.
func (w *Worker) Resume() { w.set(connected) }

// Kill is the end of a process without notice (kill -9, a power cut): from now
// on nothing that the worker does reaches the store, nothing is settled, and its
// runs are executed by others when its leases have run out. It cannot be
// resumed. A goroutine cannot be killed: the contexts of its handlers end, and
// what a handler still does by other ways than its worker, it does.
func (w *Worker) Kill() {
	w.set(dead)
	w.worker.StopNow()
	w.cancel()
	synctest.Wait()
}

// Stop is a deploy (SIGTERM): the worker drains. It returns what Worker.Run
// returned, when everything has ended.
func (w *Worker) Stop() error {
	w.cancel()
	<-w.ended
	return w.err
}

// Name returns the worker's name, as in the records of its runs.
func (w *Worker) Name() string { return w.config.Name }

// Refused lists the runs whose outcome the worker wrote too late: they were no
// longer its own, and the store changed nothing.
func (w *Worker) Refused() []durable.RunID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]durable.RunID(nil), w.refused...)
}

// set changes the link, lets the calls that wait check again, and returns when
// what follows from it at this instant has happened.
func (w *Worker) set(to link) {
	w.mu.Lock()
	if w.link != dead && (w.link != gone || to == dead) {
		if to == frozen && w.link != frozen {
			w.stood = time.Since(w.began)
		}
		w.link = to
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.mu.Unlock()
	synctest.Wait()
}

// release makes the calls of a worker that is cut off or frozen fail, so that
// it can be stopped.
func (w *Worker) release() {
	w.mu.Lock()
	severed := w.link != connected
	w.mu.Unlock()
	if severed {
		w.set(dead)
		w.worker.StopNow()
	}
}

// elapsed is the worker's monotonic clock. While frozen it is a second behind: the
// loops of the worker then wait at least a second for what is about to come,
// and do not spin at one instant forever.
func (w *Worker) elapsed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link == frozen {
		return w.stood
	}
	return time.Since(w.began) + time.Second
}

// random is a worker's source of jitter. It depends on the time alone and not
// on which goroutine calls it first.
func (w *Worker) random() float64 {
	w.kit.mu.Lock()
	defer w.kit.mu.Unlock()
	if w.kit.seed == nil {
		return 0
	}
	return rand.New(rand.NewPCG(*w.kit.seed^w.number<<32, uint64(time.Since(w.began)))).Float64() //nolint:gosec // the point is that it repeats
}

// live reports whether the worker executes runs.
func (w *Worker) live() bool {
	select {
	case <-w.ended:
		return false
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link == connected
}

// has reports whether the worker serves a run.
func (w *Worker) has(r *durable.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.serves.Jobs, r.Job) && slices.Contains(w.serves.Queues, r.Queue)
}

// unsettled is how many runs the worker has claimed and not settled.
func (w *Worker) unsettled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

var bubble = regexp.MustCompile(`synctest bubble \d+`)

// handlerStacks shows where the handlers of this test stand.
func handlerStacks() string {
	buffer := make([]byte, 1<<20)
	own := bubble.FindString(string(buffer[:runtime.Stack(buffer, false)]))
	var stacks []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if bubble.FindString(head) == own && strings.Contains(stack, "durable.(*execution).perform(") {
			stacks = append(stacks, stack)
		}
	}
	return strings.Join(stacks, "\n\n")
}
