package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// A worker that looks by itself says so on the server, so that no process notifies of what
// it finds anyway, however many processes enqueue. It holds an advisory lock for each lane
// and each tenth of a second that it looks in, on the connection that listens; what
// enqueues tries whether those of the present tenth are held. When the worker dies, its
// locks go with its connection; when it stops for a while, they are of tenths that pass.
//
// Who begins is whose turn a notification is, if several have come one soon after the other:
// each member receives all, and so they mostly agree. It hands the watch over before its end,
// to the member whose turn is next.
const (
	tenth = 100 * time.Millisecond
	// A watch lasts until the end of the tenth in which it begins and of some more, the
	// more the larger the crew: the more often some member polls.
	tenthsMore = 4
	perTenth   = 10 // members
	// triedLanes bounds the lanes of one notification of which it is tried whether some
	// worker looks in them.
	triedLanes = 8
)

// tempo is how soon after each other things have happened lately. The zero value knows of
// none.
type tempo struct {
	last time.Duration // monotonic clock; zero: none
	gap  time.Duration
}

// mark records that one has happened. What passed before since does not count.
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

// often reports whether more are to be expected soon.
func (t *tempo) often() bool { return t.gap != 0 && t.gap <= watchGap }

// every is how often to look by oneself.
func (t *tempo) every() time.Duration {
	return min(max(t.gap*10/watchShare, watchOften), watchSeldom).Truncate(time.Millisecond)
}

// watches is until when some member looks in lanes by itself, about. The zero value has none.
type watches struct {
	until map[store.LaneID]time.Duration // monotonic clock
	last  time.Duration                  // of all
}

func (w *watches) put(lane store.LaneID, now, until time.Duration) {
	if w.until == nil {
		w.until = map[store.LaneID]time.Duration{}
	}
	if len(w.until) >= watchesMost {
		maps.DeleteFunc(w.until, func(_ store.LaneID, over time.Duration) bool { return over <= now })
	}
	w.until[lane], w.last = until, max(w.last, until)
}

// watchesMost is from how many lanes on those are forgotten in which no member looks.
const watchesMost = 100

// since is when no member looked any more; zero: some member does, or none ever did.
func (w *watches) endedAt(now time.Duration) time.Duration {
	if w.last > now {
		return 0
	}
	return w.last
}

// watched are the locks of what a wake-up is about, but for the tenth.
func (n *namespace) watchLocks(due *store.Due) (locks []int64) {
	class := int64(int32(hashed("durable/"+n.schema+"/watch"))) << 32 //nolint:gosec // any 32 bits will do
	lock := func(limited int64) { locks = append(locks, class|(int64(due.Lane)<<1|limited)&(1<<19-1)<<12) }
	if due.Mixed || !due.Limited {
		lock(0)
	}
	if due.Limited {
		lock(1)
	}
	return locks
}

// tried are the locks of what is to be notified, none where workers are to be notified
// whether or not one looks by itself: it might not find all of it.
func (s *Store) locksToTry(dues []store.Due) (locks []int64) {
	runs := 0
	for i := range dues {
		due := &dues[i]
		if !opens(due) || due.Lane <= 0 || due.Runs == 0 {
			return nil
		}
		runs += due.Runs
		locks = append(locks, s.names.watchLocks(due)...)
	}
	if runs > store.RunsPerWorker || len(locks) > triedLanes {
		return nil
	}
	return locks
}

// begins decides, of what was notified, what this member is to look for by itself from now
// on, and how many tenths after this one. Where one does already, a notification is for one
// look; of another lane, it is also for the member that watches: one does so for all lanes.
func (c *crew) startWatching(now time.Duration, watching bool, heard []store.Signal) (mine []store.Due, more int) {
	var open []*store.Due
	runs, asked, handed := 0, false, false
	for i := range heard {
		due := &heard[i].Due
		if heard[i].Kind != store.RunsDue || due.Names == 0 || due.In > 0 || due.Passed > 0 || due.Draw == 0 || !c.serves(due.Names) {
			continue
		}
		open, runs = append(open, due), runs+due.Runs
		asked, handed = asked || due.For > 0, handed || due.For == store.HandOver
	}
	if runs == 0 || runs > watchMost {
		return nil, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) == 0 {
		return nil, 0
	}
	if !handed {
		c.heard.mark(now, c.watched.endedAt(now))
	}
	if !handed && !asked && !c.heard.often() {
		return nil, 0
	}
	more = min(max(len(c.members)/perTenth, 1), tenthsMore)
	last := c.watched.last
	for _, due := range open {
		every := due.Every
		if due.Every, due.For = 0, 0; !handed && c.watched.until[due.Lane]-now > store.HandOver {
			continue
		}
		joins := !handed && last-now > store.HandOver
		if joins {
			c.watched.put(due.Lane, now, last)
		} else {
			c.watched.put(due.Lane, now, now+time.Duration(more)*tenth+tenth/2)
		}
		if joins && watching {
			due.Draw = 0 // it is this member's, whatever was drawn
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

// first reports whether a wake-up is this member's before all others: many runs are for
// several members, of which one continues. c.mu is held.
func (c *crew) first(due store.Due) bool {
	due.Runs = min(due.Runs, 1)
	after, mine := c.takes(due)
	return mine && after == 0
}

// watch has the worker look by itself for what was notified, if it is its turn and more is
// to be expected, and says so on the server. It returns what was notified with that.
func (l *listener) watch(ctx context.Context, payload string) []store.Signal {
	heard := signals(l.hints.self, payload)
	if l.crew == nil {
		return heard
	}
	own := heard == nil // the worker knows already, but for a watch
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

// say holds the locks of lanes for this tenth of a second and some more, and ends those that
// have passed. It returns how long they last.
func (l *listener) announceWatch(ctx context.Context, dues []store.Due, more int) (rest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p := queries.WatchParams{Lanes: []int64{}, More: small(more), Passed: l.takeExpired(lease.Running())}
	for i := range dues {
		p.Lanes = append(p.Lanes, l.names.watchLocks(&dues[i])...)
	}
	row, err := l.queries(l.conn).Watch(ctx, p)
	if err != nil { // the connection is of no use any more, as waiting on it will show
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

// unsay ends the locks that have passed, which the server would keep room for.
func (l *listener) releaseExpired(ctx context.Context) {
	now := lease.Running()
	if slices.ContainsFunc(l.tenths, func(one heldTenth) bool { return one.until <= now }) {
		l.announceWatch(ctx, nil, 0)
	}
}

// passed are the locks of tenths that are over, which it forgets.
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

// handedLanes bounds the lanes that are handed over: about as many as a worker claims from
// without reading their heads.
const handedLanes = 60

// handing is a watch that is to be handed over before its end, if it has found runs: then
// what enqueues never finds that none looks. The zero value is none.
type handover struct {
	began time.Duration // monotonic clock
	at    time.Duration // likewise; zero: none is under way
	dues  []store.Due
	found int64 // runs that the process had claimed before
}

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

// drop leaves lanes to the member that another one, or this one, has handed them over to.
func (h *handover) drop(heard []store.Signal) {
	h.dues = slices.DeleteFunc(h.dues, func(due store.Due) bool {
		return slices.ContainsFunc(heard, func(signal store.Signal) bool { return signal.Due.For == store.HandOver && signal.Due.Lane == due.Lane })
	})
}

// next ends the watch and returns what is to be notified, for the next member to look for by
// itself; nothing if few runs have been found.
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

// handOver hands a watch over, if it is time. The member whose turn it is may be this one.
func (l *listener) handOver(ctx context.Context) {
	now := lease.Running()
	if l.handover.at == 0 || now < l.handover.at {
		return
	}
	dues := l.handover.next(now, l.claimed.Load())
	if len(dues) == 0 || l.config.NoNotify {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = l.queries(l.conn).Notify(ctx, queries.NotifyParams{Channel: l.channel, Payloads: []string{duePayload(l.hints.self, dues)}}) // as with say
}

// said is a lock that says that this session looks in a lane.
type heldTenth struct {
	lock  int64
	until time.Duration // monotonic clock
}
