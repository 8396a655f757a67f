package postgres

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
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

// namesOf returns the hashes of a queue and a job in one number.
func namesOf(queue, job string) uint64 { return uint64(hashed(queue))<<32 | uint64(hashed(job)) }

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

// crews are the crews of the workers of this process.
type crews struct {
	mu   sync.Mutex
	all  []*crew
	lost map[int32][]uint32 // by the key of the crew, members whose connection broke before they could say that they leave
}

func (c *crews) join(one *crew) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

func (c *crews) part(one *crew) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other *crew) bool { return other == one })
}

// lose records members of a crew that could not say that they leave. The next member that
// joins from this process says it for them.
func (c *crews) lose(key int32, members ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[int32][]uint32{}
	}
	c.lost[key] = append(c.lost[key], members...)
}

// takeLost returns the members that lose recorded for a crew, and forgets them.
func (c *crews) takeLost(key int32) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := c.lost[key]
	delete(c.lost, key)
	return members
}

// any reports whether any worker of this process listens.
func (c *crews) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

// find returns the crew with this key; nil: no worker of this process listens for it.
func (c *crews) find(key int32) *crew {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.key == key {
			return one
		}
	}
	return nil
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

// leave staggers the claims of workers that see the same run in the heads before it is due.
// The instant at which it is due is the draw, so all of them agree on the order.
func (s *Store) leave(serves store.Serves, heads []store.Head) {
	if !s.crews.any() || !slices.ContainsFunc(heads, func(h store.Head) bool { return h.In > 0 && h.Lane > 0 }) {
		return
	}
	if c := s.crews.find(newCrew(s.db.Names, serves).key); c != nil {
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

// join makes the session of this connection a member.
func (c *crew) join(ctx context.Context, s *Store, session *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.db.Queries(session).JoinCrew(ctx, queries.JoinCrewParams{Class: c.class, Crew: c.key})
}

// check reads the members from the lock table of the server, and returns those that have
// left without notifying the others.
func (c *crew) check(ctx context.Context, s *Store, session *pgx.Conn) (gone []uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := s.db.Queries(session).Crew(ctx, queries.CrewParams{Class: c.class, Crew: c.key})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.members
	c.self, c.members = 0, make([]uint32, 0, len(rows))
	for _, row := range rows {
		id := uint32(row.Pid) //nolint:gosec // a process number
		if c.members = append(c.members, id); row.Self {
			c.self = id
		}
	}
	if c.self == 0 {
		c.members = nil
	}
	for _, member := range before {
		if c.self != 0 && !slices.Contains(c.members, member) {
			gone = append(gone, member)
		}
	}
	return gone, nil
}

// checkEach is the time between two checks of a crew in which not every turn has a stand-in,
// by whichever member. The one that misses a member notifies the others.
const checkEach = time.Second

// checkPause returns how long this member waits before it checks the crew again.
func (c *crew) checkPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.members)
	if n <= standIns {
		return pingEvery
	}
	pause := min(time.Duration(n)*checkEach, pingEvery)
	return pause - pause/4 + rand.N(pause/2) // members of a new fleet begin together
}
