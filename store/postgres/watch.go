package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// While runs arrive frequently, one worker of a crew watches: it claims every few
// milliseconds without being notified. It announces that on the server, so that no process
// sends a notification for a run that the watcher finds anyway, however many processes
// enqueue.
//
// The announcement is an advisory lock for each lane and each tenth of a second of the
// watch, held by the session that listens. An enqueue tries the locks of the current tenth
// and sends its notification only if they are free. If the watcher dies, its session ends
// and releases its locks. If it stalls, its locks soon belong to tenths that have passed.
//
// The member whose turn a notification is starts the watch, once notifications arrive close
// together. Every member receives every notification, so they mostly agree on whose turn it
// is. Before a watch ends, the watcher hands it over to the member whose turn is next.
const (
	tenth = 100 * time.Millisecond
	// A watch lasts for the rest of the current tenth and for one to tenthsMore further
	// ones: one for every perTenth members, since a larger crew polls more often and finds
	// sooner what a stalled watcher misses.
	tenthsMore = 4
	perTenth   = 10
	// watchLocksMost bounds the locks of a watch, because the server has one table, of limited
	// size, for the locks of all sessions. What exceeds it is watched, but not announced.
	watchLocksMost = 200
	// triedLanes bounds the locks that an enqueue tries. With more it notifies.
	triedLanes = 8
)

// tempo estimates the time between events of one kind by an exponential moving average.
// The zero value has seen none.
type tempo struct {
	last time.Duration // monotonic clock; zero: none
	gap  time.Duration // the average; zero: unknown
}

// mark records an event. Only the part of the gap after since counts.
func (t *tempo) mark(now, since time.Duration) {
	gap := gapMost
	if t.last != 0 {
		gap = min(max(now-max(t.last, since), 0), gapMost)
	}
	if t.gap == 0 {
		t.gap = gap
	}
	t.gap += (gap - t.gap) / gapPart
	t.last = now
}

// often reports whether the next event is likely within watchGap.
func (t *tempo) often() bool { return t.gap != 0 && t.gap <= watchGap }

// every returns the pause between two claims of a watch at this tempo.
func (t *tempo) every() time.Duration {
	return min(max(t.gap*10/watchShare, watchOften), watchSeldom).Truncate(time.Millisecond)
}

// watches records until when, roughly, some member watches each lane. The zero value has none.
type watches struct {
	until map[store.LaneID]time.Duration // monotonic clock
	last  time.Duration                  // the latest of them
}

// put records a watch of a lane.
func (w *watches) put(lane store.LaneID, now, until time.Duration) {
	if w.until == nil {
		w.until = map[store.LaneID]time.Duration{}
	}
	if len(w.until) >= watchesMost {
		maps.DeleteFunc(w.until, func(_ store.LaneID, over time.Duration) bool { return over <= now })
	}
	w.until[lane], w.last = until, max(w.last, until)
}

// watchesMost is the number of lanes from which put first drops the watches that have ended.
const watchesMost = 100

// endedAt returns when the last watch ended; zero: one is under way, or there was none.
func (w *watches) endedAt(now time.Duration) time.Duration {
	if w.last > now {
		return 0
	}
	return w.last
}

// watchLocks returns the advisory locks that stand for the runs of a wake-up, one each for
// its unlimited and its limited runs. The lowest twelve bits are left for the tenth.
func watchLocks(n *conn.Namespace, due *store.Due) (locks []int64) {
	class := int64(int32(hashed("durable/"+n.Schema+"/watch"))) << 32 //nolint:gosec // any 32 bits will do
	lock := func(limited int64) { locks = append(locks, class|(int64(due.Lane)<<1|limited)&(1<<19-1)<<12) }
	if due.Mixed || !due.Limited {
		lock(0)
	}
	if due.Limited {
		lock(1)
	}
	return locks
}

// locksToTry returns the locks that a notification depends on. It returns none if workers
// must be notified in any case, because a watcher might not find all of these runs.
func (s *Store) locksToTry(dues []store.Due) (locks []int64) {
	runs := 0
	for i := range dues {
		due := &dues[i]
		if !opens(due) || due.Lane <= 0 || due.Runs == 0 {
			return nil
		}
		runs += due.Runs
		locks = append(locks, watchLocks(s.db.Names, due)...)
	}
	if runs > store.RunsPerWorker || len(locks) > triedLanes {
		return nil
	}
	return locks
}

// startWatching decides which of the notified lanes this member watches from now on, and
// for how many tenths after the current one. It sets Every and For of their wake-ups, and
// clears them in the others. A notification for a lane that some member watches already asks
// for a single claim. If it is for another lane, the watcher, which watching reports this
// member to be, adds that lane to its watch, so that one member watches all lanes.
func (c *crew) startWatching(now time.Duration, watching bool, heard []store.Signal) (mine []store.Due, more int) {
	dues, runs := c.watchable(heard)
	if runs == 0 || runs > watchMost {
		return nil, 0
	}
	asked := slices.ContainsFunc(dues, func(due *store.Due) bool { return due.For > 0 })
	handedOver := slices.ContainsFunc(dues, func(due *store.Due) bool { return due.For == store.HandOver })
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) == 0 {
		return nil, 0
	}
	if !handedOver {
		c.heard.mark(now, c.watched.endedAt(now))
	}
	if !asked && !c.heard.often() {
		return nil, 0
	}
	more = min(max(len(c.members)/perTenth, 1), tenthsMore)
	end := now + time.Duration(more)*tenth + tenth/2
	joins := !handedOver && c.watched.last-now > store.HandOver // a watch that is under way
	if joins {
		end = c.watched.last
	}
	for _, due := range dues {
		every := due.Every
		due.Every, due.For = 0, 0
		if !handedOver && c.watched.until[due.Lane]-now > store.HandOver {
			continue
		}
		c.watched.put(due.Lane, now, end)
		if joins && watching {
			due.Draw = 0 // this member answers it, whichever the draw chooses
		} else if joins || !c.first(*due) {
			continue
		}
		due.For = time.Duration(more) * tenth
		if due.Every = every; every == 0 {
			due.Every = c.heard.every()
		}
		mine = append(mine, *due)
	}
	return mine, more
}

// watchable returns the wake-ups that a member of this crew may watch for, and the number
// of their runs.
func (c *crew) watchable(heard []store.Signal) (dues []*store.Due, runs int) {
	for i := range heard {
		due := &heard[i].Due
		if heard[i].Kind == store.RunsDue && due.Names != 0 && due.In == 0 && due.Passed == 0 && due.Draw != 0 && c.serves(due.Names) {
			dues, runs = append(dues, due), runs+due.Runs
		}
	}
	return dues, runs
}

// first reports whether this member is the first in the order that a wake-up draws. Several
// members answer a wake-up for many runs; only the first of them continues with a watch.
// c.mu is held.
func (c *crew) first(due store.Due) bool {
	due.Runs = min(due.Runs, 1)
	after, mine := c.takes(due)
	return mine && after == 0
}

// watch reads a notification and starts a watch if it is this worker's turn and more runs
// are expected soon. It returns the signals for the worker, with the watch that they ask for.
func (l *listener) watch(ctx context.Context, payload string) []store.Signal {
	heard := signals(l.hints.self, payload)
	if l.crew == nil {
		return heard
	}
	own := heard == nil // sent by this process: its workers know of the runs, not of a watch
	if own {
		heard = signals("", payload)
	}
	l.handover.drop(heard)
	mine, more := l.crew.startWatching(lease.Running(), l.handover.at != 0, heard)
	if len(mine) > 0 {
		rest := l.announceWatch(ctx, mine, more)
		for i := range heard {
			if due := &heard[i].Due; due.For > 0 {
				due.For = max(due.For, rest)
			}
		}
	}
	if own {
		heard = slices.DeleteFunc(heard, func(signal store.Signal) bool { return signal.Due.For == 0 })
	}
	return heard
}

// announceWatch acquires the locks of lanes for the current tenth of a second and for more
// further ones, and releases those of tenths that have passed. It returns how long the
// acquired ones last. If that fails it closes the connection.
func (l *listener) announceWatch(ctx context.Context, dues []store.Due, more int) (rest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p := queries.WatchParams{Lanes: []int64{}, More: conn.Small(more), Passed: l.takeExpired(lease.Running())}
	for i := range dues {
		lanes := append(p.Lanes, watchLocks(l.db.Names, &dues[i])...)
		if len(l.tenths)+len(lanes)*(more+1) > watchLocksMost {
			break
		}
		p.Lanes = lanes
	}
	row, err := l.db.Queries(l.conn).Watch(ctx, p)
	if err != nil { // it may hold locks that are not in tenths: receive fails and connects again
		_ = l.conn.Close(ctx)
		return 0
	}
	now := lease.Running()
	rest = time.Duration(row.Rest)*time.Microsecond + time.Duration(more)*tenth
	for _, lock := range row.Locks {
		l.tenths = append(l.tenths, heldTenth{lock, now + rest})
	}
	if len(dues) > 0 {
		l.handover.add(now, rest, dues, l.claimed.Load())
	}
	return rest
}

// releaseExpired releases the locks of tenths that have passed, so that they take no room in
// the lock table of the server.
func (l *listener) releaseExpired(ctx context.Context) {
	now := lease.Running()
	if slices.ContainsFunc(l.tenths, func(one heldTenth) bool { return one.until <= now }) {
		l.announceWatch(ctx, nil, 0)
	}
}

// takeExpired returns the locks of tenths that have passed and forgets them.
func (l *listener) takeExpired(now time.Duration) []int64 {
	locks := []int64{}
	l.tenths = slices.DeleteFunc(l.tenths, func(one heldTenth) bool {
		over := one.until <= now
		if over {
			locks = append(locks, one.lock)
		}
		return over
	})
	return locks
}

// handedLanes bounds the lanes of a handover: about as many as a worker claims from without
// reading their heads.
const handedLanes = 60

// handover is a watch of this worker that it hands over before the end if it has found
// enough runs, so that enqueues see no gap between two watches. The zero value is none.
type handover struct {
	began time.Duration // monotonic clock
	at    time.Duration // when to hand over, on the monotonic clock; zero: no watch is under way
	dues  []store.Due
	found int64 // runs that the process had claimed when the watch began
}

// add begins a watch that lasts for rest, or adds lanes to the one under way, whose end stays.
func (h *handover) add(now, rest time.Duration, dues []store.Due, found int64) {
	if h.at == 0 {
		*h = handover{began: now, at: now + rest - store.HandOver, found: found}
	}
	for i := range dues {
		known := slices.ContainsFunc(h.dues, func(due store.Due) bool { return due.Lane == dues[i].Lane })
		if !known && len(h.dues) < handedLanes {
			h.dues = append(h.dues, dues[i])
		}
	}
}

// drop removes the lanes that a notification hands over: their next watcher is drawn by it.
func (h *handover) drop(heard []store.Signal) {
	h.dues = slices.DeleteFunc(h.dues, func(due store.Due) bool {
		return slices.ContainsFunc(heard, func(signal store.Signal) bool { return signal.Due.For == store.HandOver && signal.Due.Lane == due.Lane })
	})
}

// next ends the watch and returns the wake-ups that hand it over. It returns none if the
// watch has found too few runs to be worth continuing.
func (h *handover) next(now time.Duration, found int64) (dues []store.Due) {
	gap := now - h.began
	if n := found - h.found; n > 0 {
		gap /= time.Duration(n)
	}
	if gap <= 2*watchGap {
		dues = h.dues
	}
	every, draw := (&tempo{gap: gap}).every(), newDraw()
	for i := range dues {
		due := &dues[i]
		due.Runs, due.Every, due.For, due.Draw = 1, every, store.HandOver, draw
	}
	*h = handover{}
	return dues
}

// handOver hands the watch over when it is time. The draw may choose this worker again.
func (l *listener) handOver(ctx context.Context) {
	now := lease.Running()
	if l.handover.at == 0 || now < l.handover.at {
		return
	}
	dues := l.handover.next(now, l.claimed.Load())
	if len(dues) == 0 || l.noNotify {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// If it fails, the connection is broken, which receive notices next, or the next poll finds the runs.
	_ = l.db.Queries(l.conn).Notify(ctx, queries.NotifyParams{Channel: l.channel, Payloads: []string{duePayload(l.hints.self, dues)}})
}

// heldTenth is an advisory lock by which this session announces that it watches a lane.
type heldTenth struct {
	lock  int64
	until time.Duration // monotonic clock
}
