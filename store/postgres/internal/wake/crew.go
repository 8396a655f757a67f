package wake

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// crew is the set of workers that listen for the same jobs on the same queues, as one of
// them sees it. A wake-up carries a random number, the draw, by which every member puts the
// crew into the same order: the first member claims, and the others need not know whether it
// has. This is rendezvous hashing (Thaler and Ravishankar, 1998): when a member joins or
// leaves, the order of the others stays, so members with different views mostly agree.
//
// Each member holds an advisory lock on its listening connection, and the lock table of the
// server lists the members. A worker that could not read that table answers every wake-up.
type crew struct {
	queues, jobs map[uint32]struct{} // hashes of their names
	class, key   int32               // of the advisory lock

	mu      sync.Mutex // guards what follows
	self    uint32
	members []uint32 // all of them, including self; empty: unknown
	heard   tempo    // notifications for the crew
	watched watches  // of the members
}

const (
	// standInPause is the head start that the second worker of a wake-up gives the first.
	standInPause = 10 * time.Millisecond
	// standIns is the size of a crew up to which the second worker always claims as well. In
	// a larger crew it does so for standIns out of as many wake-ups as there are members,
	// since the polls of a larger crew are closer together.
	standIns = 4
)

func newCrew(n *conn.Namespace, serves store.Serves) *crew {
	c := &crew{queues: map[uint32]struct{}{}, jobs: map[uint32]struct{}{}, class: int32(hashed("durable/" + n.Schema + "/crew"))} //nolint:gosec // any 32 bits will do
	queues, jobs := slices.Sorted(slices.Values(serves.Queues)), slices.Sorted(slices.Values(serves.Jobs))
	c.key = int32(hashed(strings.Join(queues, "\x00") + "\x00\x00" + strings.Join(jobs, "\x00"))) //nolint:gosec // likewise
	for _, name := range queues {
		c.queues[hashed(name)] = struct{}{}
	}
	for _, name := range jobs {
		c.jobs[hashed(name)] = struct{}{}
	}
	return c
}

func hashed(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return h.Sum32()
}

// NamesOf returns the hashes of a queue and a job in one number.
func NamesOf(queue, job string) uint64 { return uint64(hashed(queue))<<32 | uint64(hashed(job)) }

// serves reports whether the workers of the crew execute the runs of a lane; zero names mean every lane.
func (c *crew) serves(names uint64) bool {
	_, queue := c.queues[uint32(names>>32)]
	_, job := c.jobs[uint32(names)] //nolint:gosec // the lower half
	return names == 0 || queue && job
}

// turn reports whether this worker answers a wake-up, and after what pause.
func (c *crew) turn(due store.Due) (after time.Duration, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takes(due)
}

// takes is turn with c.mu held.
func (c *crew) takes(due store.Due) (after time.Duration, mine bool) {
	if due.Draw == 0 || len(c.members) == 0 {
		return 0, due.Passed == 0
	}
	place := c.place(due.Draw)
	last := due.Passed + due.Wanted(len(c.members))
	switch {
	case place < due.Passed:
		return 0, false // this member has passed it on
	case place < last:
		return 0, true
	case place == last && int(due.Draw>>8)%len(c.members) < standIns:
		return standInPause, true
	default:
		return 0, false
	}
}

// fold returns the signals that are for this listener. A listener without a crew does not
// work: it gets one signal for all runs that are due.
func (c *crew) fold(heard []store.Signal) (kept []store.Signal) {
	all := false
	for _, signal := range heard {
		switch due := signal.Due; {
		case signal.Kind != store.RunsDue:
			kept = append(kept, signal)
		case c == nil || due.Lane == 0:
			all = true
		case c.serves(due.Names):
			if after, mine := c.turn(due); mine {
				signal.Due.After = after
				kept = append(kept, signal)
			}
		}
	}
	if all {
		kept = slices.Insert(kept, 0, store.Signal{Kind: store.RunsDue})
	}
	return kept
}

// crewChange is a member that joins or leaves.
type crewChange struct {
	letter byte
	key    int32
	member uint32
}

const (
	crewJoins  = 'j'
	crewLeaves = 'x'
)

// change returns the payload for a member joining or leaving: a letter, the crew and the member.
func (c *crew) change(letter byte, member uint32) string {
	text := strconv.AppendUint([]byte{letter}, uint64(uint32(c.key)), numeralsBase) //nolint:gosec // all its bits
	return string(strconv.AppendUint(append(text, ','), uint64(member), numeralsBase))
}

// changes returns the payloads for several members.
func (c *crew) changes(letter byte, members []uint32) (payloads []string) {
	for _, member := range members {
		payloads = append(payloads, c.change(letter, member))
	}
	return payloads
}

// own returns this member; zero: it has not joined.
func (c *crew) own() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.self
}

func readChange(payload string) (change crewChange, ok bool) {
	_, text, _ := strings.Cut(payload, " ")
	if text == "" || text[0] != crewJoins && text[0] != crewLeaves {
		return change, false
	}
	fields, ok := numerals(text[1:])
	if !ok || len(fields) != 2 {
		return change, false
	}
	return crewChange{text[0], int32(fields[0]), uint32(fields[1])}, true //nolint:gosec // as they were written
}

// take records a change of the crew. The next check finds a change that was missed.
func (c *crew) take(change crewChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change.key != c.key || change.member == c.self || len(c.members) == 0 {
		return
	}
	c.members = slices.DeleteFunc(c.members, func(member uint32) bool { return member == change.member })
	if change.letter == crewJoins {
		c.members = append(c.members, change.member)
	}
}

// place returns how many members come before this one in the order of a draw. c.mu is held.
func (c *crew) place(draw uint32) (place int) {
	own := weight(draw, c.self)
	for _, member := range c.members {
		if w := weight(draw, member); w > own || w == own && member > c.self {
			place++
		}
	}
	return place
}

// Members that see a run in the heads before it is due all expect it. They claim it one
// after the other: first those that were notified of it, then these, by their place.
const (
	leaveFirst = 8 * time.Millisecond
	leaveNext  = leaveFirst + standInPause
	leaveOther = 500 * time.Millisecond
	leaveEach  = 100 * time.Millisecond
	leaveMost  = 3 * time.Second
)

// Leave staggers the claims of workers that see the same run in the heads before it is due.
// The instant at which it is due is the draw, so all of them agree on the order.
func (w *Waker) Leave(serves store.Serves, heads []store.Head) {
	if !w.crews.any() || !slices.ContainsFunc(heads, func(h store.Head) bool { return h.In > 0 && h.Lane > 0 }) {
		return
	}
	if c := w.crews.find(newCrew(w.db.Names, serves).key); c != nil {
		c.leave(heads)
	}
}

func (c *crew) leave(heads []store.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) < 2 {
		return
	}
	for i := range heads {
		h := &heads[i]
		if h.In <= 0 || h.Lane <= 0 || h.Line != 0 {
			continue
		}
		switch place := c.place(uint32(h.DueAt.UnixMicro())); place { //nolint:gosec // any 32 bits will do
		case 0:
			h.After = leaveFirst
		case 1:
			h.After = leaveNext
		default:
			h.After = min(leaveOther+time.Duration(place)*leaveEach, leaveMost)
		}
	}
}

// weight hashes a draw and a member.
func weight(draw, member uint32) uint32 {
	x := (uint64(draw)<<32 | uint64(member)) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return uint32(x >> 32)
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
