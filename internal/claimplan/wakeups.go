package claimplan

import (
	"maps"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// WakeUps are those that no claim has answered yet. The zero value has none. Its
// methods may be called concurrently.
type WakeUps struct {
	mu       sync.Mutex
	anywhere bool                       // one named no lane
	lanes    map[store.LaneID]store.Due // those that are named, with one wake-up of each
	later    time.Duration              // when a run is to become due; zero: none is known of
	watches  map[store.LaneID]watching
}

// watching is a lane that the worker examines again and again.
type watching struct {
	store.Due

	until time.Duration
}

// Add records a wake-up that names a lane.
func (u *WakeUps) Add(due store.Due) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lanes == nil {
		u.lanes = map[store.LaneID]store.Due{}
	}
	u.lanes[due.Lane] = joined(due, u.lanes)
}

// joined is a wake-up with the kinds of runs of the one that its lane has among lanes.
func joined(due store.Due, lanes map[store.LaneID]store.Due) store.Due {
	if before, there := lanes[due.Lane]; there {
		return due.And(before)
	}
	return due
}

// Watch has a lane examined with every claim, until an instant and once after it. It lasts
// as long as an earlier one of the lane asks for, and looks for its kinds of runs too.
func (u *WakeUps) Watch(due store.Due, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watches == nil {
		u.watches = map[store.LaneID]watching{}
	}
	if before, watched := u.watches[due.Lane]; watched {
		due, until = due.And(before.Due), max(until, before.until)
	}
	u.watches[due.Lane] = watching{due, until}
}

// Leave ends the watch of a lane. It reports whether there was one.
func (u *WakeUps) Leave(lane store.LaneID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, watched := u.watches[lane]
	delete(u.watches, lane)
	return watched
}

// AddAnywhere records a wake-up that names no lane.
func (u *WakeUps) AddAnywhere() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.anywhere = true
}

// Expect records that a run becomes due at an instant.
func (u *WakeUps) Expect(at time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.later == 0 || at < u.later {
		u.later = at
	}
}

// Woken is what wake-ups have said since they were last taken.
type Woken struct {
	Anywhere bool                       // one named no lane
	Lanes    map[store.LaneID]store.Due // those that are named, with one wake-up of each
	Later    bool                       // a run was to become due by now
	Again    time.Duration              // when to look again although no wake-up comes; zero: not
}

// unseen reports whether one is for runs that the heads do not show.
func (t Woken) unseen() bool {
	for _, due := range t.Lanes {
		if due.Unseen {
			return true
		}
	}
	return false
}

// Take returns the wake-ups and forgets them.
func (u *WakeUps) Take(now time.Duration) (t Woken) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t = Woken{Anywhere: u.anywhere, Lanes: maps.Clone(u.lanes), Later: u.later != 0 && u.later <= now}
	u.anywhere = false
	clear(u.lanes)
	if t.Later {
		u.later = 0
	}
	for lane, w := range u.watches {
		if t.Lanes == nil {
			t.Lanes = map[store.LaneID]store.Due{}
		}
		t.Lanes[lane] = joined(w.Due, t.Lanes)
		if now >= w.until { // this is the last look
			delete(u.watches, lane)
		} else if t.Again == 0 || w.Every < t.Again {
			t.Again = w.Every
		}
	}
	return t
}

// Next is how long it is until a run is expected to become due; negative: none is.
func (u *WakeUps) Next(now time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.later == 0 {
		return -1
	}
	return max(u.later-now, 0)
}
