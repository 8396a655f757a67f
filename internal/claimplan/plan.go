package claimplan

import (
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Plan is the policy of a worker's claims: which lanes to look at, in which
// order, and how many runs to take from each. The store is the mechanism.
//
//   - Strict priority: a lane of a higher priority comes first.
//   - Fairness inside a priority: each lane first gets a share, oldest first.
//   - No starvation: of every fairness runs, one is the oldest of any priority.
//   - Watermark: a claim starts at the lane's mark, the due instant of the last
//     run taken from it, so that dead index entries below it cost nothing. What
//     appears below a mark is seen by the next look below it (see reach), mostly
//     within a second.
type Plan struct {
	lanes    []*lane // by descending priority
	byID     map[store.LaneID]*lane
	byLine   map[store.LineID]*lane // those of lanes that are lines of turns
	isolated []store.Head           // lines of isolated runs whose first is due
	outdated bool                   // the heads must be read again before the next claim
	idle     bool                   // nothing was due when last looked
	missed   bool                   // a wake-up that named no lane came while there was other work; the heads answer it
	headsAt  time.Duration          // when the heads were last read
	headsDue time.Duration          // when they are read again although wake-ups come
	next     time.Duration          // how long after headsAt the next run is due that they showed; negative: none
	nextAt   time.Duration          // the instant of that; negative: none
	follows  bool                   // since the heads were last read, a claim has got something, or a run was expected
	taken    int                    // runs claimed, modulo fairness
	limited  bool                   // the last claim was one of limited runs
	vain     bool                   // since the last claim of limited runs, others were looked for in vain
	repaid   bool                   // the last claim was for the oldest due of any priority alone
	sizer    batchSizer
	reach    reach
}

// New returns a plan whose claims carry, on average, at most so many bytes of args.
// It has the heads read first.
func New(claimBytes int) *Plan {
	return &Plan{outdated: true, next: -1, sizer: batchSizer{most: claimBytes}}
}

// lane is what the worker remembers of one lane.
type lane struct {
	store.Head
	due  bool
	mark time.Time // claims start here
}

const (
	fairness = 16  // of so many runs claimed, one is the oldest of any priority
	minShare = 10  // least share of a lane, so that a small claim is not spread thin
	maxSteps = 128 // of one claim
)

// steps returns the claim of up to n runs that are not limited, from lanes of at
// least a priority.
func (p *Plan) steps(n, lowest int, b *stepper) []store.Step {
	if oldest := p.oldest(b); oldest != nil && oldest.Line == 0 {
		b.add(oldest, (p.taken+n)/fairness)
	}
	for start := 0; start < len(p.lanes) && p.lanes[start].Priority >= lowest; {
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
func (p *Plan) oldest(b *stepper) *lane {
	var oldest, first *lane
	for _, l := range p.lanes {
		if !l.due || l.Line == 0 && b.rest(l.Queue) == 0 {
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
		if l.due && l.Line == 0 {
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

// ApplyClaim records what the store has answered to a claim: marks rise, lanes that
// gave less than was asked of them are empty, and after a short claim the heads are
// read again.
func (p *Plan) ApplyClaim(request *store.ClaimRequest, runs []store.ClaimedRun) {
	p.sizer.learn(runs)
	p.follows = p.follows || len(runs) > 0
	if request.Alone {
		p.outdated = true
		return
	}
	p.taken = (p.taken + len(runs)) % fairness
	p.limited = len(request.Admissions) > 0
	p.vain = !p.limited && len(runs) == 0
	if p.limited {
		p.applyAdmission(request, len(runs))
		return
	}
	got := make(map[store.LaneID]int, len(request.Steps))
	for i := range runs {
		got[runs[i].Lane]++
		if l := p.byID[runs[i].Lane]; l != nil && runs[i].DueAt.After(l.mark) {
			l.mark = runs[i].DueAt
		}
	}
	if len(runs) >= request.Limit {
		return
	}
	p.outdated = true
	asked := make(map[store.LaneID]int, len(request.Steps))
	for _, s := range request.Steps {
		asked[s.Lane] += s.Take
	}
	for id, count := range asked {
		if l := p.byID[id]; l != nil && got[id] < count {
			l.due = false
		}
	}
}
