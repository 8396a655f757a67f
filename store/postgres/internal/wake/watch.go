package wake

import (
	"context"
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
