package durabletest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Run runs a test with a kit: the real engine, on a memory store, in virtual
// time. Within test the clock begins on 2000-01-01 UTC and advances only while
// every goroutine of the test waits, so that days take milliseconds and
// everything happens at its exact instant. time.Now, timers, context deadlines
// and sleeps, of handlers too, use that clock.
//
// The rules are those of testing/synctest, on which Run is built: test must not
// call t.Run or t.Parallel (the caller of Run may), and time does not advance
// while a goroutine waits for something outside the test: a network connection, a
// process, a mutex held for long. Handlers that need those are tested with
// Perform, or on a real store.
//
// When test returns, all workers are stopped, before the functions given to
// t.Cleanup are called. A handler that does not return then fails the test, and
// its stack is shown.
func Run(t *testing.T, test func(t *testing.T, kit *Kit)) {
	t.Helper()
	defer func() {
		left := recover()
		if left != nil && !strings.HasPrefix(fmt.Sprint(left), "deadlock:") {
			panic(left)
		}
		if left != nil {
			t.Errorf("goroutines that began in the test have not ended with it: %v", left)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		kit := newKit(t)
		defer kit.close()
		test(t, kit)
	})
}

// Kit is what Run hands to a test. Its methods are called by the test's own
// goroutine only.
type Kit struct {
	// Store is where the runs are. The assertions of this package read it.
	Store *memory.Store
	// Client enqueues into Store.
	Client *durable.Client
	// Limits bound RunDue, RunAll and Advance, so that a run that begins again
	// forever fails the test and does not hang it.
	Limits Limits

	t       testing.TB
	log     *slog.Logger
	changed chan struct{} // something was claimed or settled
	at      time.Time     // the test's virtual time, see Advance
	left    time.Time     // when the last call returned

	schedules map[string]bool // that are declared; nil: all

	mu      sync.Mutex // guards what the workers write
	workers []*Worker
	seed    *uint64 // nil: everything at its very instant
	spent   int     // executions since the last call began
	tally   Tally
	stored  []string // steps, in the order in which they were
	crashAt int      // how many steps are stored when the next crash comes; 0: none comes
	effects []string
}

// Limits bound one call of RunDue, RunAll or Advance.
type Limits struct {
	// Executions is the most that may begin. Default 5,000, less than half a second of
	// real time on a quiet machine.
	Executions int
	// Time is how long RunDue and RunAll wait, in virtual time, for something to
	// be claimed or settled while runs are due or running. Default 7 days.
	Time time.Duration
}

// Tally counts the executions that have ended since the call before, by how they
// ended. A write that was refused is not counted.
type Tally struct {
	Succeeded  int
	Failed     int // failed attempts that are tried again
	Dead       int
	Cancelled  int
	Snoozed    int
	HandedBack int
	Misfits    int // args that do not fit the worker that took the run, tried again
}

func newKit(t testing.TB) *Kit {
	store := memory.New(memory.Config{})
	return &Kit{
		Store: store, Client: durable.NewClient(watchedStore{store}),
		Limits: Limits{Executions: 5_000, Time: 7 * 24 * time.Hour},
		t:      t, log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		changed: make(chan struct{}, 1), at: time.Now(), left: time.Now(),
	}
}

// Seed gives the workers jitter, which follows from seed, the worker and the
// virtual time, so that it repeats. Without it there is none: a run is begun at
// the instant it is due, and a worker's own retry policy has no spread. What does
// not repeat in either case is which of two goroutines comes first at one
// instant, and the jitter of a retry policy that a job brings along.
func (k *Kit) Seed(seed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seed = &seed
}

// OnlySchedules has the workers that are started from now on declare only the
// schedules of these names, and without names none: a test of one thing need not
// live through what else the program does by the clock.
func (k *Kit) OnlySchedules(names ...string) {
	k.schedules = map[string]bool{}
	for _, name := range names {
		k.schedules[name] = true
	}
}

// all are the workers that there have been.
func (k *Kit) all() []*Worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.workers)
}

// poke makes a call that waits check again.
func (k *Kit) poke() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// spend counts n executions and reports whether more may begin.
func (k *Kit) spend(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spent += n
	return k.spent < k.Limits.Executions
}

// count records an execution that has ended.
func (k *Kit) count(kind store.OutcomeKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch kind {
	case store.Success:
		k.tally.Succeeded++
	case store.Failure:
		k.tally.Failed++
	case store.Death:
		k.tally.Dead++
	case store.Cancellation:
		k.tally.Cancelled++
	case store.Snoozed:
		k.tally.Snoozed++
	case store.HandedBack:
		k.tally.HandedBack++
	case store.Misfit:
		k.tally.Misfits++
	case store.Crash: // recorded by Reclaim, never settled
	}
}

// close stops every worker: all of them first, as a cluster that goes down, and
// then it waits.
func (k *Kit) close() {
	k.t.Helper()
	for _, w := range k.all() {
		w.release()
		w.cancel()
	}
	for _, w := range k.all() {
		select {
		case <-w.ended:
		case <-time.After(k.Limits.Time):
		}
		synctest.Wait()
		if w.worker.Status().Executing > 0 {
			k.t.Errorf("%s could not be stopped, handlers ignore that their context has ended:\n%s", w.config.Name, handlerStacks())
		}
	}
}
