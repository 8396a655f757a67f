package await

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Linger is how long to wait for more runs that end with one.
const Linger = 2 * time.Millisecond

const (
	waitTick     = 50 * time.Millisecond // the shortest pause between two reads of one run
	waitHearing  = 500 * time.Millisecond
	waitMost     = 2 * time.Second
	awaitEvery   = 5 * time.Second // a run is announced as awaited
	waitFailures = 36              // reads in a row that may fail: about a minute
)

// watch reads the runs that callers wait for: when they are new, when a signal
// says that they may have ended, and at intervals.
type watch struct {
	store   store.Store
	waiters int // the hub's own
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	wake    chan struct{}

	mu      sync.Mutex
	runs    map[store.RunID]*watched
	hearing bool // the listener is up
	all     bool // some run may have ended
}

// watched is a run that a caller waits for.
type watched struct {
	waiters   map[*waiter]struct{}
	due       bool          // at the next opportunity
	left      time.Duration // until it is read without a signal
	pause     time.Duration // between two such reads
	failures  int           // reads in a row that failed
	announced bool          // as awaited
}

// newWatch starts a watch. It continues when ctx ends: others may have joined.
func newWatch(ctx context.Context, db store.Store) *watch {
	w := &watch{store: db, wake: make(chan struct{}, 1), runs: map[store.RunID]*watched{}}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.loops.Go(func() { w.listenLoop(ctx) })
	w.loops.Go(func() { w.readLoop(ctx) })
	return w
}

func (w *watch) stop() {
	w.cancel()
	w.loops.Wait()
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) add(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range one.missing {
		run := w.runs[id]
		if run == nil {
			run = &watched{waiters: map[*waiter]struct{}{}, pause: waitTick, left: waitTick, due: true}
			w.runs[id] = run
		}
		run.waiters[one] = struct{}{}
	}
	w.poke()
}

func (w *watch) remove(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range one.ids {
		if run := w.runs[id]; run != nil {
			if delete(run.waiters, one); len(run.waiters) == 0 {
				delete(w.runs, id)
			}
		}
	}
}

// hear handles a signal.
func (w *watch) hear(signal store.Signal) {
	if signal.Kind != store.RunEnded {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if signal.Run == (store.RunID{}) {
		w.all, w.hearing = true, true // read with the next tick: such signals may come one after the other
	} else if run := w.runs[signal.Run]; run != nil {
		run.due = true
		w.poke()
	}
}

// deaf makes every run be read often again: no signals will come.
func (w *watch) deaf() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hearing = false
	for _, run := range w.runs {
		run.pause, run.left = waitTick, waitTick
	}
}

// listenLoop keeps a listener up.
func (w *watch) listenLoop(ctx context.Context) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		heard := false
		_ = w.store.Listen(ctx, func(s store.Signal) { heard = true; w.hear(s) }) // without it, polling finds out
		w.deaf()
		if heard {
			pause = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// readLoop reads runs until ctx ends.
func (w *watch) readLoop(ctx context.Context) {
	tick := time.NewTicker(waitTick)
	defer tick.Stop()
	announce := time.NewTicker(awaitEvery)
	defer announce.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-announce.C:
			w.announce(ctx, w.awaited())
			continue
		case <-tick.C:
			w.pass(waitTick)
			w.lookAt(ctx, w.others(), []store.State{store.Succeeded, store.Dead, store.Cancelled})
		case <-w.wake:
			select { // what comes with it is read in the same call
			case <-ctx.Done():
				return
			case <-time.After(Linger):
			}
		}
		fresh, chosen := w.choose()
		w.announce(ctx, fresh)
		w.lookAt(ctx, chosen, nil)
	}
}

// announce notifies workers that a caller waits.
func (w *watch) announce(ctx context.Context, ids []store.RunID) {
	for _, id := range ids {
		_ = w.store.Publish(ctx, store.Signal{Kind: store.RunAwaited, Run: id}) // likewise
	}
}

func (w *watch) awaited() []store.RunID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]store.RunID, 0, len(w.runs))
	for id := range w.runs {
		ids = append(ids, id)
	}
	return ids
}

// pass lets time advance. What has been read twice is read less often while the
// listener is up.
func (w *watch) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range w.runs {
		if run.left -= d; run.left > 0 {
			continue
		}
		run.due = true
		run.pause = min(2*run.pause, waitMost)
		if w.hearing {
			run.pause = max(run.pause, waitHearing)
		}
		run.left = run.pause
	}
}

// choose takes the runs that were not announced before, and those that are due
// to be read.
func (w *watch) choose() (fresh, chosen []store.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, run := range w.runs {
		if run.due {
			chosen = append(chosen, id)
			run.due = false
		}
		if !run.announced {
			fresh = append(fresh, id)
			run.announced = true
		}
	}
	return fresh, chosen
}

// others are, when some run may have ended, those that are not due to be read
// anyway.
func (w *watch) others() (ids []store.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, run := range w.runs {
		if w.all && !run.due {
			ids = append(ids, id)
		}
	}
	w.all = false
	return ids
}

// Batch is how many runs are read in one call.
const Batch = 200

// lookAt reads runs and notifies their waiters. Only with no states in the filter
// does a run that is not found mean that there is none.
func (w *watch) lookAt(ctx context.Context, ids []store.RunID, states []store.State) {
	for len(ids) > 0 && ctx.Err() == nil {
		some := ids[:min(len(ids), Batch)]
		ids = ids[len(some):]
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		page, err := w.store.Runs(bounded, store.Filter{IDs: some, States: states, Limit: len(some)})
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			w.failed(some, err)
		default:
			w.found(some, page.Runs, states == nil)
		}
	}
}

func (w *watch) found(ids []store.RunID, records []store.Record, everything bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := make(map[store.RunID]struct{}, len(records))
	for i := range records {
		record := records[i]
		there[record.ID] = struct{}{}
		if record.State.Terminal() {
			w.tell(record.ID, record, nil)
		}
	}
	for _, id := range ids {
		if run := w.runs[id]; run != nil {
			run.failures = 0
		}
		if _, found := there[id]; !found && everything {
			w.tell(id, store.Record{}, fmt.Errorf("run %s: %w", id, store.ErrNotFound))
		}
	}
}

// failed makes the runs be read again soon, or gives up.
func (w *watch) failed(ids []store.RunID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if run := w.runs[id]; run != nil {
			if run.failures++; run.failures > waitFailures {
				w.tell(id, store.Record{}, fmt.Errorf("wait for run %s: %w", id, err))
			}
		}
	}
}

// tell passes on what happened to a run, which then has no waiter any more. The
// caller holds the mutex.
func (w *watch) tell(id store.RunID, record store.Record, err error) {
	run := w.runs[id]
	if run == nil {
		return
	}
	delete(w.runs, id)
	for one := range run.waiters {
		one.tell(id, record, err)
	}
}
