package await

import (
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

// Schedules are the runs for which schedules wait, as this worker has found them in
// its own looks. It asks those who execute them to announce their ends, and then
// has the schedules looked at. It is a hint like every signal: a schedule that
// waits is looked at now and then in any case.
type Schedules struct {
	Ended chan struct{} // some may have ended

	mu   sync.Mutex
	runs map[store.RunID]*waitedFor
	all  bool // some of them may have ended
}

// waitedFor is a run for which a schedule waits.
type waitedFor struct {
	schedule  string
	seen      time.Duration // on the worker's clock; found unfinished
	announced time.Duration // as awaited
	ended     bool          // perhaps
}

// Init makes the zero value ready.
func (a *Schedules) Init() {
	a.Ended, a.runs = make(chan struct{}, 1), map[store.RunID]*waitedFor{}
}

// Found takes in what a look has left waiting, and returns the runs that are to
// be announced as awaited. A schedule that has only begun to wait is looked at
// again soon enough.
func (a *Schedules) Found(list []store.WaitingSchedule, now time.Duration) (announce []store.RunID) {
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

// Hear takes in that a run, or with the zero id some run, may have ended.
func (a *Schedules) Hear(id store.RunID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if run := a.runs[id]; run != nil {
		run.ended = true
	} else if id != (store.RunID{}) || len(a.runs) == 0 {
		return
	}
	a.all = a.all || id == (store.RunID{})
	select {
	case a.Ended <- struct{}{}:
	default:
	}
}

// Take returns the runs that may have ended since it was last called.
func (a *Schedules) Take() (ids []store.RunID) {
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

// Over forgets runs that have ended and returns the schedules that waited.
func (a *Schedules) Over(records []store.Record) (names []string) {
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
