package durable

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/durable-worker/durable-worker/internal/stepping"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// execution is one run in the hands of this worker.
type execution struct {
	*laneWork

	w     *Worker
	claim *claim
	run   *store.ClaimedRun // the execution's own, where the store's answer has it

	begun      atomic.Bool  // the handler has been called, or is about to be
	returned   atomic.Bool  // the handler has returned, or will not be called
	resolution atomic.Int32 // see the constants
	reported   bool         // it was logged as what keeps an isolated run waiting; only the claimer uses it
	slotGone   bool         // the slot was given back before the handler returned; written before resolution

	lossSeen atomic.Bool // hooks have been called for the loss of its lease

	permanent bool // the handler itself has made the run dead; written before its outcome is handed over

	cancelReason atomic.Pointer[string]  // the reason, once the run is to be cancelled
	cancel       context.CancelCauseFunc // of the handler's context; set before begun

	mu                  sync.Mutex
	result              []byte
	completedInTx       bool // the handler completes the run in a transaction of its own
	returnedNil         bool // and has returned nil
	resultAfterComplete bool // and has set a result after that
	log                 *slog.Logger
	lines               *logLines      // nil until the handler asks for its logger
	reports             *reports       // nil until the handler reports
	steps               *stepping.Book // nil until the handler records
	handlerErr          error          // what the handler returned; kept for hooks only
}

// laneWork is what the executions of a lane's runs have in common.
type laneWork struct {
	registration

	job    string // the name under which the runs are stored
	queue  string
	room   *queueRoom // of a capped queue, else nil
	counts *observe.LaneCounts
}

// freeSlot gives the slot, and the place in a capped queue, to another run.
func (x *execution) freeSlot() {
	if x.room != nil {
		x.room.executing.Add(-1)
		x.w.poller.Wake() // it may be asleep for want of room
	}
	x.w.poller.Free(1)
}

// over returns lease.ErrLost once the handler has returned: it may no longer act for the run.
func (x *execution) over() error {
	if x.returned.Load() {
		return lease.ErrLost
	}
	return nil
}

// valid reports whether the run may still be written to, by the worker's clock.
func (x *execution) valid(ctx context.Context) bool {
	return ctx.Err() == nil && x.over() == nil && x.claim.hold.Valid()
}

func (x *execution) setResult(text []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.result, x.resultAfterComplete = text, x.completedInTx
}

// logger returns the worker's logger with the attributes of this run.
func (x *execution) logger() *slog.Logger {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.log == nil {
		x.log = x.w.config.Logger.With("run", x.run.ID.String(), "job", x.job, "attempt", x.run.Attempt)
	}
	return x.log
}

// The resolutions of an execution. The first to leave unresolved decides who settles.
const (
	unresolved      int32 = iota
	resolvedInTime        // the handler has returned in time
	resolvedLost          // the lease was lost and the handler did not return: stuck
	resolvedTimeout       // timed out and did not return: stuck, and settled as failed
)

// queueRoom counts the runs of a capped queue.
type queueRoom struct {
	max       int
	executing atomic.Int64
}

// capsOf returns the worker's own caps of queues for its report, sorted by queue.
func capsOf(rooms map[string]*queueRoom) (caps []store.OwnCap) {
	for _, queue := range slices.Sorted(maps.Keys(rooms)) {
		if room := rooms[queue]; room != nil && len(caps) < store.MaxReportNames {
			caps = append(caps, store.OwnCap{Queue: queue, Max: room.max, Executing: int(room.executing.Load())})
		}
	}
	return caps
}

// isStuck reports whether the handler was given up and has not returned.
func (x *execution) isStuck() bool {
	resolution := x.resolution.Load()
	return (resolution == resolvedLost || resolution == resolvedTimeout) && !x.returned.Load()
}

// book returns the execution's book of steps, created on first use.
func (x *execution) book() *stepping.Book {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.steps == nil {
		x.steps = stepping.NewBook(x.w.recorder, stepsOf{x})
	}
	return x.steps
}

// begunBook returns the execution's book; nil: the handler has recorded nothing.
func (x *execution) begunBook() *stepping.Book {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.steps
}

// open returns why the handler may not act in the branch of ctx.
func (x *execution) open(ctx context.Context) error {
	if err := x.over(); err != nil {
		return err
	}
	return x.begunBook().Open(ctx)
}

// charged is the run with the attempts that its stretch of life has been charged with: a wait that
// this execution has recorded began a new one.
func (x *execution) charged() *store.ClaimedRun {
	if !x.begunBook().Stretched() {
		return x.run
	}
	run := *x.run
	run.Attempt = 1
	return &run
}
