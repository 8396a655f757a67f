package admission

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// lineMarks remembers where the long lines of waiters begin. The index begins with what
// was admitted since it was last vacuumed, and an admission that reads a line from its
// beginning reads all of that: the more the longer a line has been admitted from, and far
// more while an old snapshot is held. From its mark on it reads only waiters.
//
// A mark is a guess: a waiter may enter the line below it, with a due instant in the past.
// Usually its turn reveals that, being as old as its waiter; otherwise the next read from the
// beginning finds it. How long such a read takes decides how often there is one. No admission
// concludes from marks that no run waits.
type lineMarks struct {
	mu    sync.Mutex
	left  map[lineAt]int // waiters that have left the lines without a mark that were read in part
	marks map[lineAt]lineMark
}

// marks are the marks of lines by whose gate they are read: their own, or one in whose round
// they wait.
type marks struct {
	lineMarks

	rounds lineMarks
}

// forget drops all of them.
func (m *marks) forget() {
	m.lineMarks.forget()
	m.rounds.forget()
}

// MarkLine has a line be read from an instant on, as an admission would that has read it.
func (m *Admitter) MarkLine(gate int64, lane store.LaneID, due time.Time, until time.Duration) {
	m.marks.mu.Lock()
	defer m.marks.mu.Unlock()
	m.marks.set(lineAt{gate, lane}, lineMark{due: due, until: until})
}

// MarkUntil has all marks be good until an instant on the monotonic clock.
func (m *Admitter) MarkUntil(until time.Duration) {
	m.marks.mu.Lock()
	defer m.marks.mu.Unlock()
	for at, mark := range m.marks.marks {
		mark.until = until
		m.marks.marks[at] = mark
	}
}

// Marked returns how many lines of the lanes have marks now.
func (m *Admitter) Marked(lanes []store.LaneID) int { return len(m.marks.of(lanes).gates) }

// ForgetMarks drops all marks.
func (m *Admitter) ForgetMarks() { m.marks.forget() }

// lineAt is one line of waiters.
type lineAt struct {
	gate int64
	lane store.LaneID
}

type lineMark struct {
	due   time.Time     // of the first waiter that may be there
	until time.Duration // monotonic clock: the line is then read from its beginning
}

const (
	markFrom = 500  // waiters have left a line before it gets a mark
	markMost = 64   // lines have a mark at most
	leftMost = 2000 // lines without one are remembered at most
	// A read from the beginning is followed by belowRest times as long without one, at
	// most belowMost.
	belowRest = 20
	belowMost = 30 * time.Second
)

// forget drops the marks: what has left the lines may be there again.
func (m *lineMarks) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.marks)
	clear(m.left)
}

// markArgs are marks as parameters.
type markArgs struct {
	gates []int64
	lanes []int32
	dues  []time.Time
	ends  []time.Duration // how long they are good for
}

// of returns the marks by which the lines of lanes may be read now.
func (m *lineMarks) of(lanes []store.LaneID) (args markArgs) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := lease.Elapsed()
	for at, mark := range m.marks {
		if now < mark.until && slices.Contains(lanes, at.lane) {
			args.gates, args.lanes = append(args.gates, at.gate), append(args.lanes, at.lane)
			args.dues, args.ends = append(args.dues, mark.due), append(args.ends, mark.until-now)
		}
	}
	return args
}

// has reports whether a line has a mark among them.
func (a *markArgs) has(at lineAt) bool {
	for i, gate := range a.gates {
		if gate == at.gate && a.lanes[i] == at.lane {
			return true
		}
	}
	return false
}

// low is the mark of a line among them; zero: it has none.
func (a *markArgs) low(at lineAt) time.Time {
	for i, gate := range a.gates {
		if gate == at.gate && a.lanes[i] == at.lane {
			return a.dues[i]
		}
	}
	return time.Time{}
}

// lineRead is what an admission has read of a line, and left of it.
type lineRead struct {
	read, left int       // waiters; those that have left it
	first      time.Time // due instant of the first one that stays, or of the last one that left
	stays      bool      // one stays
	deep       bool      // more may follow than were read
}

func (l *lineRead) add(due time.Time, left bool) {
	l.read++
	switch {
	case left:
		l.left++
		if !l.stays && due.After(l.first) {
			l.first = due
		}
	case !l.stays || due.Before(l.first):
		l.stays, l.first = true, due
	}
}

// learn records how an admission has left the lines of its lanes in the gates that it
// examined: which it has read from their marks, or from their beginning, which took so long.
func (m *lineMarks) learn(examined map[int64]bool, lanes []store.LaneID, lines map[lineAt]*lineRead, used *markArgs, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.marks, func(at lineAt, _ lineMark) bool { // the line is empty
		return examined[at.gate] && lines[at] == nil && slices.Contains(lanes, at.lane)
	})
	until := lease.Elapsed() + min(belowRest*took, belowMost)
	for at, line := range lines {
		mark, marked := m.marks[at]
		switch {
		case !line.deep:
			delete(m.marks, at)
			delete(m.left, at)
			continue
		case !marked && m.count(at, line.left) < markFrom:
			continue
		case !used.has(at):
			mark.until = until
		}
		mark.due = line.first
		m.set(at, mark)
	}
}

// count adds what has left a line without a mark. m.mu is held.
func (m *lineMarks) count(at lineAt, left int) int {
	if m.left == nil {
		m.left = map[lineAt]int{}
	}
	if _, known := m.left[at]; !known && len(m.left) >= leftMost {
		for other := range m.left {
			delete(m.left, other)
			break
		}
	}
	m.left[at] += left
	return m.left[at]
}

// set marks a line. m.mu is held.
func (m *lineMarks) set(at lineAt, mark lineMark) {
	if m.marks == nil {
		m.marks = map[lineAt]lineMark{}
	}
	if _, marked := m.marks[at]; !marked && len(m.marks) >= markMost {
		m.evict()
	}
	m.marks[at] = mark
	delete(m.left, at)
}

// evict forgets the mark that ends first: its line is no longer read, or quickly read from
// its beginning. m.mu is held.
func (m *lineMarks) evict() {
	var first lineAt
	until := time.Duration(math.MaxInt64)
	for at, mark := range m.marks {
		if mark.until < until {
			first, until = at, mark.until
		}
	}
	delete(m.marks, first)
}

// depths are how many waiters of each line were read at most, of the gates that may have
// marks: where a limit acts on waiters, one that is not seen could lose its place for good.
func (a *admission) depths() map[admit.GateID]int {
	depths := make(map[admit.GateID]int, len(a.input.Gates))
	for i := range a.input.Gates {
		if g := &a.input.Gates[i]; g.Depth > 0 && g.Limit != nil && g.Limit.Action() <= store.FullWait {
			depths[g.ID] = g.Depth
		}
	}
	return depths
}

// lines sums up what the admission has read of the lines of its own lanes; gone are the
// waiters that have left them.
func (a *admission) lines(depths map[admit.GateID]int, gone map[store.RunID]struct{}) map[lineAt]*lineRead {
	lines := map[lineAt]*lineRead{}
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		depth := depths[w.Gate]
		if depth == 0 || !slices.Contains(a.request.Lanes, w.Lane) {
			continue
		}
		at := lineAt{int64(w.Gate), w.Lane}
		line := lines[at]
		if line == nil {
			line = &lineRead{}
			lines[at] = line
		}
		_, left := gone[w.Run]
		line.add(w.DueAt, left)
		line.deep = line.read >= depth
	}
	return lines
}

// mark remembers where the lines begin that the admission has read.
func (a *admission) mark(d *admit.Decision) {
	if len(a.input.Gates) > markMost {
		return
	}
	gone := make(map[store.RunID]struct{}, len(d.Admitted)+len(d.Moved)+len(d.Refused))
	for i := range d.Admitted {
		gone[d.Admitted[i].Run] = struct{}{}
	}
	for i := range d.Moved {
		gone[d.Moved[i].Run] = struct{}{}
	}
	for i := range d.Refused {
		gone[d.Refused[i].Run] = struct{}{}
	}
	depths, examined := a.depths(), map[int64]bool{}
	for gate := range depths {
		examined[int64(gate)] = true
	}
	a.marks.learn(examined, a.request.Lanes, a.lines(depths, gone), &a.used, a.took)
	a.markEntries(gone)
}

// lookBelow announces gates that keep room for which no waiter above a mark was small
// enough, for when their lines are read from the beginning: one below may be. Of the others
// a release, their rate or a change of the limit announces when it is time.
func (a *admission) lookBelow(d *admit.Decision) {
	for i, gate := range a.used.gates {
		at := slices.IndexFunc(a.input.Gates, func(g admit.Gate) bool { return int64(g.ID) == gate && g.Depth > 0 })
		if at < 0 || slices.ContainsFunc(d.Turns, func(t admit.Turn) bool { return int64(t.Gate) == gate }) {
			continue
		}
		if g := &a.input.Gates[at]; g.Limit != nil && !g.Limit.Rate() && admit.Announced(g.Limit, used(g, d), 1) {
			d.Turns = append(d.Turns, admit.Turn{Line: a.used.lanes[i], Gate: g.ID, DueAt: a.input.Now.Add(a.used.ends[i])})
		}
	}
}

// used is how many places of a gate are in use after what was decided.
func used(g *admit.Gate, d *admit.Decision) int {
	n := g.Used
	for i := range d.Permits {
		if d.Permits[i].Gate == g.ID && d.Permits[i].Until != store.UntilExpires { // those of named owners may take the place of others
			n += d.Permits[i].Weight
		}
	}
	return n
}

// shallow reports whether lines that were read from their marks may have waiters below
// them: because one of their turns is older than the mark, or because they had fewer
// waiters than were asked for.
func (a *admission) shallow(gates []int64, turns []time.Time) bool {
	if len(a.used.gates) == 0 {
		return false
	}
	var lines map[lineAt]*lineRead
	for i, gate := range a.used.gates {
		n := slices.Index(gates, gate)
		if n < 0 {
			continue
		}
		if lines == nil {
			lines = a.lines(a.depths(), nil)
		}
		if line := lines[lineAt{gate, a.used.lanes[i]}]; line == nil || !line.deep || turns[n].Before(a.used.dues[i]) {
			return true
		}
	}
	return false
}
