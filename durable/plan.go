package durable

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// plan is the policy of a worker's claims: which lanes to look at, in which
// order, and how many runs to take from each. The store is the mechanism.
//
//   - Strict priority: a lane of a higher priority comes first.
//   - Fairness inside a priority: each lane first gets a share, oldest first.
//   - No starvation: of every fairness runs, one is the oldest of any priority.
//   - Watermark: a claim starts at the lane's mark, the due instant of the last
//     run taken from it, so that dead index entries below it cost nothing. What
//     appears below a mark is seen by the next look below it (see reach), mostly
//     within a second.
//
// It is pure: it knows no store and no clock.
type plan struct {
	lanes    []*lane // by descending priority
	byID     map[store.LaneID]*lane
	isolated []store.Head // lines of isolated runs whose first is due
	stale    bool         // the heads must be read again before the next claim
	next     time.Duration
	taken    int // runs claimed, modulo fairness
}

// lane is what the worker remembers of one lane.
type lane struct {
	store.Head
	due  bool
	mark time.Time // claims start here
}

const (
	fairness  = 16  // of so many runs claimed, one is the oldest of any priority
	minShare  = 10  // least share of a lane, so that a small claim is not spread thin
	maxSteps  = 128 // of one claim
	blindMost = 64  // lanes that may be claimed from without reading their heads
)

// learn records the heads as the store told them.
func (p *plan) learn(heads []store.Head) {
	before, now := p.byID, clockOf(heads)
	p.lanes, p.isolated, p.byID = p.lanes[:0], p.isolated[:0], make(map[store.LaneID]*lane, len(heads))
	p.stale, p.next = false, -1
	for _, h := range heads {
		if h.Waiting && h.In > 0 && (p.next < 0 || h.In < p.next) {
			p.next = h.In
		}
		due := h.Waiting && h.In <= 0
		if h.Lane < 0 {
			if due {
				p.isolated = append(p.isolated, h)
			}
			continue
		}
		l := &lane{Head: h, due: due}
		switch known := before[h.Lane]; {
		case due:
			l.mark = h.DueAt
		case !now.IsZero():
			l.mark = now // nothing before it waits
		case known != nil:
			l.mark = known.mark
		}
		p.lanes = append(p.lanes, l)
		p.byID[h.Lane] = l
	}
	slices.SortStableFunc(p.lanes, func(a, b *lane) int { return cmp.Compare(b.Priority, a.Priority) })
	slices.SortFunc(p.isolated, func(a, b store.Head) int { return a.DueAt.Compare(b.DueAt) })
}

// clockOf is the store's time when the heads were read; the zero time: they do
// not tell.
func clockOf(heads []store.Head) time.Time {
	for _, h := range heads {
		if h.Waiting {
			return h.DueAt.Add(-h.In)
		}
	}
	return time.Time{}
}

// bounds are the marks of all lanes that have one.
func (p *plan) bounds() map[store.LaneID]time.Time {
	bounds := make(map[store.LaneID]time.Time, len(p.lanes))
	for _, l := range p.lanes {
		if !l.mark.IsZero() {
			bounds[l.Lane] = l.mark
		}
	}
	return bounds
}

// unmark lets claims take what is below the marks.
func (p *plan) unmark() {
	for _, l := range p.lanes {
		l.mark = time.Time{}
	}
}

// blind makes every lane a candidate, for a worker that was woken and has not
// read the heads. It reports whether it may.
func (p *plan) blind() bool {
	if len(p.lanes) == 0 || len(p.lanes) > blindMost {
		return false
	}
	for _, l := range p.lanes {
		l.due = true
	}
	return true
}

// call makes lanes candidates that a wake-up has named. It reports whether all are
// known.
func (p *plan) call(lanes map[store.LaneID]store.Due) (known bool) {
	known = true
	for id := range lanes {
		if l := p.byID[id]; l != nil {
			l.due = true
		} else {
			known = false
		}
	}
	return known
}

// soon is how long to sleep when nothing can be claimed: until the next run is
// due, or, while an isolated run waits for room, until the heads are read again.
func (p *plan) soon() time.Duration {
	if len(p.isolated) > 0 && (p.next < 0 || p.next > headsEvery) {
		return headsEvery
	}
	return p.next
}

// steps returns the claim of up to n runs. room reports how many more runs of a
// queue may execute; negative means no cap.
func (p *plan) steps(n int, room func(queue string) int) []store.Step {
	b := stepper{room: room, left: map[string]int{}, skip: map[store.LaneID]int{}}
	if oldest := p.oldest(&b); oldest != nil {
		b.add(oldest, (p.taken+n)/fairness)
	}
	for start := 0; start < len(p.lanes); {
		end := start
		for end < len(p.lanes) && p.lanes[end].Priority == p.lanes[start].Priority {
			end++
		}
		b.level(p.lanes[start:end], n)
		start = end
	}
	return b.steps
}

// oldest returns the lane of the oldest due run, when that can differ from
// what priority would choose.
func (p *plan) oldest(b *stepper) *lane {
	var oldest, first *lane
	for _, l := range p.lanes {
		if !l.due || b.rest(l.Queue) == 0 {
			continue
		}
		if first == nil {
			first = l
		}
		if oldest == nil || l.mark.Before(oldest.mark) {
			oldest = l
		}
	}
	if first == nil || oldest.Priority == first.Priority {
		return nil
	}
	return oldest
}

// stepper gathers the steps of one claim.
type stepper struct {
	steps []store.Step
	room  func(queue string) int
	left  map[string]int       // room left of capped queues
	skip  map[store.LaneID]int // runs of a lane that earlier steps take
}

func (b *stepper) level(lanes []*lane, n int) {
	due := make([]*lane, 0, len(lanes))
	for _, l := range lanes {
		if l.due {
			due = append(due, l)
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortStableFunc(due, func(x, y *lane) int { return x.mark.Compare(y.mark) })
	share := max(minShare, (n+len(due)-1)/len(due))
	for _, l := range due {
		b.add(l, share)
	}
	if share < n {
		for _, l := range due {
			b.add(l, n)
		}
	}
}

// add appends a step that takes up to n more runs of the lane, within the room
// of its queue.
func (b *stepper) add(l *lane, n int) {
	if rest := b.rest(l.Queue); rest >= 0 {
		n = min(n, rest)
		b.left[l.Queue] = rest - n
	}
	if n <= 0 || len(b.steps) == maxSteps {
		return
	}
	b.steps = append(b.steps, store.Step{Lane: l.Lane, From: l.mark, Skip: b.skip[l.Lane], Take: n})
	b.skip[l.Lane] += n
}

// rest is the room a queue has left in this claim; negative: no cap.
func (b *stepper) rest(queue string) int {
	rest, known := b.left[queue]
	if !known {
		if rest = b.room(queue); rest >= 0 {
			b.left[queue] = rest
		}
	}
	return rest
}

// took records what a claim of up to n runs returned: marks rise, lanes that
// gave less than was asked of them are empty, and a short claim makes the
// heads stale.
func (p *plan) took(steps []store.Step, runs []store.ClaimedRun, n int) {
	p.taken = (p.taken + len(runs)) % fairness
	got := make(map[store.LaneID]int, len(steps))
	for i := range runs {
		got[runs[i].Lane]++
		if l := p.byID[runs[i].Lane]; l != nil && runs[i].DueAt.After(l.mark) {
			l.mark = runs[i].DueAt
		}
	}
	if len(runs) >= n {
		return
	}
	p.stale = true
	asked := make(map[store.LaneID]int, len(steps))
	for _, s := range steps {
		asked[s.Lane] += s.Take
	}
	for id, count := range asked {
		if l := p.byID[id]; l != nil && got[id] < count {
			l.due = false
		}
	}
}
