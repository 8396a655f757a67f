package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/recur"
	"github.com/durable-worker/durable-worker/store"
)

const (
	// waitsMost bounds the runs whose ends a worker wants to hear of for the
	// schedules that wait for them. For the others it looks now and then.
	waitsMost = 1000
	// waitsFor is how long it does without having found the schedule waiting
	// again: by then another worker evaluates it.
	waitsFor = 5 * time.Second
)

// waits are the runs for which schedules wait, as this worker has found them in
// its own looks. It asks those who execute them to announce their ends, and then
// has the schedules looked at. It is a hint like every signal: a schedule that
// waits is looked at now and then in any case.
type waits struct {
	ended chan struct{} // some may have ended

	mu   sync.Mutex
	runs map[RunID]*waitedFor
	all  bool // some of them may have ended
}

// waitedFor is a run for which a schedule waits.
type waitedFor struct {
	schedule  string
	seen      time.Duration // on the worker's clock; found unfinished
	announced time.Duration // as awaited
	ended     bool          // perhaps
}

func (a *waits) init() {
	a.ended, a.runs = make(chan struct{}, 1), map[RunID]*waitedFor{}
}

// found takes in what a look has left waiting, and returns the runs that are to
// be announced as awaited. A schedule that has only begun to wait is looked at
// again soon enough.
func (a *waits) found(list []store.Wait, now time.Duration) (announce []RunID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, run := range a.runs {
		if now-run.seen > waitsFor {
			delete(a.runs, id)
		}
	}
	for _, one := range list {
		if one.Pause <= recur.ShortestWait {
			continue
		}
		run := a.runs[one.Run]
		if run == nil {
			if len(a.runs) >= waitsMost {
				continue
			}
			run = &waitedFor{schedule: one.Schedule, announced: now - awaitEvery}
			a.runs[one.Run] = run
		}
		if run.seen = now; now-run.announced >= awaitEvery {
			run.announced = now
			announce = append(announce, one.Run)
		}
	}
	return announce
}

// hear takes in that a run, or with the zero id some run, may have ended.
func (a *waits) hear(id RunID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if run := a.runs[id]; run != nil {
		run.ended = true
	} else if id != (RunID{}) || len(a.runs) == 0 {
		return
	}
	a.all = a.all || id == (RunID{})
	select {
	case a.ended <- struct{}{}:
	default:
	}
}

// take returns the runs that may have ended since it was last called.
func (a *waits) take() (ids []RunID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, run := range a.runs {
		if run.ended || a.all {
			ids = append(ids, id)
			run.ended = false
		}
	}
	a.all = false
	return ids
}

// over forgets runs that have ended and returns the schedules that waited.
func (a *waits) over(records []Record) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range records {
		if run := a.runs[records[i].ID]; run != nil {
			names = append(names, run.schedule)
			delete(a.runs, records[i].ID)
		}
	}
	return names
}

// await asks those who execute runs to announce their ends.
func (w *Worker) await(ctx context.Context, list []store.Wait) {
	if w.config.NoListen {
		return
	}
	for _, id := range w.waits.found(list, w.config.Elapsed()) {
		if err := w.store.Announce(ctx, store.Signal{Kind: store.RunAwaited, Run: id}); err != nil {
			w.warn(ctx, "asking for the end of a run failed, the schedule that waits for it is looked at now and then", err)
		}
	}
}

// hasten has schedules looked at now for which a run has ended, and reports
// whether there are any. What fails is left to the look that is due anyway.
func (w *Worker) hasten(ctx context.Context) bool {
	ids, hastened := w.waits.take(), false
	for len(ids) > 0 {
		some := ids[:min(len(ids), lookBatch)]
		ids = ids[len(some):]
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		page, err := w.store.Runs(bounded, Filter{IDs: some, States: []State{Succeeded, Dead, Cancelled}, Limit: len(some)})
		if names := w.waits.over(page.Runs); err == nil && len(names) > 0 {
			hastened = true
			err = w.store.Hasten(bounded, names...)
		}
		cancel()
		w.contact(err)
		if err != nil {
			w.warn(ctx, "hastening schedules failed, they are looked at now and then", err)
		}
	}
	return hastened
}
