package admit

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Entry is where the waiters of a line wait that another gate has refused: they stay
// in their line, and the line waits in the round of that gate. The first waiter of
// the line is decided about when the gate has room, so a round has one entry for
// each line and lane, however many runs wait there.
//
// The line of a gate itself has an entry in its own round, once it was served beside
// other lines.
//
// Invariant: a line has one entry at most in each lane, and an entry only while a
// due run waits in it. Its gate is full, or has a turn.
type Entry struct {
	Line GateID
	Lane store.LaneID
	Gate GateID // in whose round the line waits
	Home GateID // whose share it counts for: see HomeOf
	// Gates are those that the runs of the line need, besides that of the set.
	Gates []GateID
	// Since is when the home began to wait for its next start: it had its last one, or
	// the line came. In the round of the home itself age decides.
	Since time.Time
	// Depth is how many waiters of the line were read at most; zero: none were.
	Depth int
}

// Served says that a home got its turn in a round: none of its entries there has
// waited since earlier than this.
type Served struct {
	Gate  GateID
	Home  GateID
	Since time.Time
}

type lineAt struct {
	line GateID
	lane store.LaneID
}

// entry is a line of a lane during a decision.
type entry struct {
	lineAt
	lane   *Lane
	row    *Entry // as it was read; nil: there is none
	at     GateID // in whose line its waiters are decided about
	read   int    // waiters that were read
	first  *waiting
	served int // how many runs were admitted by then, of all, after the last one of this line; zero: none was
	by     *gate
	moved  bool // in this decision, to the round of another gate
}

func (d *deciding) lane(id store.LaneID) *Lane {
	lane := d.lanes[id]
	if lane == nil {
		lane = &Lane{ID: id}
		d.lanes[id] = lane
	}
	return lane
}

func (d *deciding) entryOf(line GateID, lane *Lane) *entry {
	at := lineAt{line, lane.ID}
	e := d.lines[at]
	if e == nil {
		e = &entry{lineAt: at, lane: lane, at: line}
		d.lines[at] = e
		d.entries = append(d.entries, e)
	}
	return e
}

// readRounds takes over the entries. Their rounds end now, unless the clock does not advance, as in
// virtual time, or was set back: a home that has its turn goes behind the others all the same.
func (d *deciding) readRounds(rows []Entry) {
	d.end = d.now
	for i := range rows {
		row := &rows[i]
		if row.Since.After(d.end) {
			d.end = row.Since
		}
		lane := d.lane(row.Lane)
		e := d.entryOf(row.Line, lane)
		e.row, e.at = row, row.Gate
		g := d.byID[row.Gate]
		if g == nil || row.Line == row.Gate {
			continue
		}
		if g.mixed = true; row.Depth == 0 {
			g.ghosts = append(g.ghosts, &waiting{
				Waiter: &Waiter{Gate: row.Line, Lane: row.Lane}, lane: lane, entry: e, home: row.Home, since: row.Since,
			})
		}
	}
}

// elsewhere reports whether the line waits in a round that is not decided about.
func (e *entry) elsewhere() bool { return e.row != nil && e.row.Line != e.row.Gate && e.row.Depth == 0 }

// note notes a waiter of the line that was read.
func (e *entry) note(w *waiting) {
	if e.read++; e.first == nil || compareWaiters(w, e.first) < 0 {
		e.first = w
	}
}

func (e *entry) serve(g *gate, admitted int) { e.served, e.by = admitted+1, g }

// home is whose share the line counts for at a gate.
func (e *entry) home(w *waiting) GateID {
	switch {
	case e.row != nil:
		return e.row.Home
	case IsSet(e.line) || e.at != e.line:
		return HomeOf(e.line, w.uses)
	default:
		return e.line
	}
}

// parks reports whether a waiter that a gate refuses has its whole line wait there.
func (w *waiting) parks(by GateID) bool {
	if IsSet(w.Gate) || w.entry.at != w.Gate && by == w.Gate {
		return true
	}
	return by == w.lane.Cap && !slices.ContainsFunc(w.uses, func(use Use) bool { return use.Acts })
}

// sort puts the line of a gate in its order.
func (g *gate) sort() {
	slices.SortFunc(g.line, compareWaiters)
	if g.mixed {
		g.rank()
		slices.SortFunc(g.line, g.compareIn)
		return
	}
	if !IsSet(g.ID) {
		return
	}
	ranks := map[int]int{}
	for _, w := range g.line {
		w.rank = ranks[w.lane.Priority]
		ranks[w.lane.Priority]++
	}
}

// rank gives the waiters of a line, which is in the order of their age, their places
// in the round.
func (g *gate) rank() {
	type key struct {
		home     GateID
		priority int
	}
	ranks, since := map[key]int{}, map[GateID]time.Time{}
	for _, w := range g.line {
		at := w.DueAt
		if w.entry.row != nil {
			at = w.entry.row.Since
		}
		w.home = w.entry.home(w)
		first, known := since[w.home]
		if !known || at.Before(first) {
			since[w.home] = at
		}
	}
	for _, w := range g.line {
		if row := w.entry.row; row != nil && row.Line == row.Gate && row.Since.After(since[w.home]) {
			since[w.home] = row.Since // its lines have one share
		}
	}
	for _, w := range g.line {
		of := key{w.home, w.lane.Priority}
		w.rank, w.since = ranks[of], since[w.home]
		ranks[of]++
	}
}

// compareIn is the order of a gate's line: by priority, then one run of each home
// before a second of any, the home first that has waited longest, then by age.
func (g *gate) compareIn(a, b *waiting) int {
	if !g.mixed {
		return compareWaiters(a, b)
	}
	if c := cmp.Or(cmp.Compare(b.lane.Priority, a.lane.Priority), cmp.Compare(a.rank, b.rank)); c != 0 {
		return c
	}
	return cmp.Or(a.since.Compare(b.since), compareWaiters(a, b))
}

// mix makes the line of a gate one in which others wait too.
func (g *gate) mix() {
	if g.mixed {
		return
	}
	g.mixed = true
	decided := g.line[:g.next]
	g.rank()
	slices.SortFunc(g.line[len(decided):], g.compareIn)
}

// asIn is a waiter as one of the line of another gate.
func (d *deciding) asIn(g *gate, w *waiting) *waiting {
	if !g.mixed {
		return w
	}
	as := *w
	as.since = d.since(w.entry)
	return &as
}

// since is since when a line waits for its next start.
func (d *deciding) since(e *entry) time.Time {
	if e.row == nil || e.served > 0 || e.row.Line == e.row.Gate {
		return d.end
	}
	return e.row.Since
}

// atEnd is a place behind all others in a round, and behind those with a lower number.
func (d *deciding) atEnd(number int) time.Time {
	return d.end.Add(time.Duration(number) * time.Microsecond)
}

// behind reports whether a waiter of another line has to take its turn in the round of
// a gate, as others come first there. Of all that wait, the one that has waited longest
// is behind none, so lines do not go from one round to another without end.
func (d *deciding) behind(g *gate, w *waiting) bool {
	if !g.mixed {
		return false
	}
	w = d.asIn(g, w)
	first := func(other *waiting) bool {
		return !other.gone && other.entry != w.entry && d.open(g, other.lane) && g.compareIn(other, w) < 0
	}
	return slices.ContainsFunc(g.ghosts, first) || slices.ContainsFunc(g.line[g.next:], first)
}

// park has a line wait in the round of another gate, or in its own line again.
func (d *deciding) park(e *entry, from, to *gate) {
	if to.ID != e.line {
		to.mix()
	}
	since := d.since(e)
	e.at, e.moved = to.ID, true
	rank := 0
	for _, w := range from.line {
		if w.entry != e || w.gone {
			continue
		}
		w.gone = true
		moved := *w
		moved.gone, moved.since, moved.rank = false, since, rank
		moved.moved, moved.asked = w.asked || to.Entries == 0 || d.left(to) == 0, true
		moved.home = e.home(w)
		rank++
		d.insert(to, &moved)
	}
}

// unreadRound announces room for what a round may have besides the entries that were
// read, and for lines of which none stays of those that were.
func (a *arming) unreadRound() {
	var lanes laneCounts
	for _, e := range a.entries {
		row := e.row
		if row == nil || row.Gate != a.ID || row.Line == row.Gate {
			continue
		}
		lanes.add(e.lane.ID)
		switch {
		case row.Depth == 0:
			a.missed(e.lane.ID)
		case e.read >= row.Depth && !e.stays(a.gate):
			a.more(e.lane.ID)
		}
	}
	for _, l := range lanes {
		if a.Entries > 0 && l.n >= a.Entries {
			a.more(l.lane)
		}
	}
}

// missed announces what room is left to a line that another admission has locked.
func (a *arming) missed(lane store.LaneID) {
	switch {
	case a.Entries == 0: // the round was not read
	case a.left > 0:
		a.turn(lane, a.ID, a.now.Add(BusyAgain))
	case a.lacking == 0:
		a.lacking = 1
	}
}

// more announces what room is left to a lane in which more may wait.
func (a *arming) more(lane store.LaneID) {
	switch {
	case a.left > 0 || a.acted:
		a.turn(lane, a.ID, a.now)
	case a.lacking == 0:
		a.lacking = 1
	}
}

// stays reports whether waiters of the line stay that were read.
func (e *entry) stays(g *gate) bool {
	return slices.ContainsFunc(g.line, func(w *waiting) bool { return w.entry == e && !w.gone })
}

// concludeRounds writes down where lines wait now.
func (d *deciding) concludeRounds() {
	if !slices.ContainsFunc(d.gates, func(g *gate) bool { return g.mixed }) &&
		!slices.ContainsFunc(d.entries, func(e *entry) bool { return e.row != nil || e.moved }) {
		return
	}
	d.noteServed()
	changed := slices.DeleteFunc(slices.Clone(d.entries), func(e *entry) bool { return !d.settle(e) })
	slices.SortStableFunc(changed, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.served, b.served), compareWaiters(a.first, b.first))
	})
	for i, e := range changed {
		d.place(e, d.atEnd(i))
	}
}

// noteServed notes which homes had their turns in rounds.
func (d *deciding) noteServed() {
	for _, e := range d.entries {
		if e.served == 0 || !e.by.mixed {
			continue
		}
		if home := e.home(e.first); home != e.by.ID {
			d.Served = append(d.Served, Served{Gate: e.by.ID, Home: home, Since: d.atEnd(e.served)})
		}
	}
}

// settle deletes the entry of a line that waits there no more, and reports whether
// another one has to be written.
func (d *deciding) settle(e *entry) bool {
	g := d.byID[e.at]
	if g == nil || g.Busy || e.row != nil && !e.moved && e.elsewhere() {
		return false
	}
	own := e.at == e.line
	stays := e.stays(g) || e.read > 0 && e.read >= d.depth(e)
	if e.row != nil && (!stays || own && e.moved || own && !g.mixed) {
		d.Unpark = append(d.Unpark, *e.row)
	}
	switch {
	case !stays:
		return false
	case own:
		return g.mixed && !IsSet(e.line) && e.served > 0 && !e.moved
	default:
		return e.moved || e.served > 0 && !e.onlyServed()
	}
}

// onlyServed reports whether the entry of a line that was served is right once its home goes
// to the end of the round, as noteServed says: nothing else of it has changed.
func (e *entry) onlyServed() bool {
	row := e.row
	return row != nil && e.by.mixed && row.Gate == e.by.ID && e.at == row.Gate && row.Home == e.home(e.first) && row.Home != e.by.ID &&
		slices.EqualFunc(row.Gates, e.first.uses, func(gate GateID, use Use) bool { return gate == use.Gate })
}

// depth is how many waiters of the line were read at most.
func (d *deciding) depth(e *entry) int {
	switch {
	case e.row != nil && e.row.Depth > 0:
		return e.row.Depth
	case d.byID[e.line] != nil && d.byID[e.line].Depth > 0:
		return d.byID[e.line].Depth
	default:
		return int(^uint(0) >> 1)
	}
}

// place writes the entry of a line that waits in a round.
func (d *deciding) place(e *entry, now time.Time) {
	row := Entry{Line: e.line, Lane: e.lane.ID, Gate: e.at, Home: e.home(e.first), Since: now}
	for i := range e.first.uses {
		row.Gates = append(row.Gates, e.first.uses[i].Gate)
	}
	if since := d.since(e); since.Before(d.end) {
		row.Since = since
	}
	d.Park = append(d.Park, row)
}
