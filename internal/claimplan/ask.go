package claimplan

import (
	"math"

	"github.com/durable-worker/durable-worker/store"
)

// Ask is what a claim asks for: runs by steps, or limited runs by admissions.
type Ask struct {
	Steps      []store.Step
	Admissions []store.Admission
	Lanes      []store.LaneID // that runs may be admitted from
	Limit      int            // runs in all
}

// Empty reports whether there is nothing to ask for.
func (a *Ask) Empty() bool { return len(a.Steps) == 0 && len(a.Admissions) == 0 }

// Ask returns the claim of up to n runs. room reports how many more runs of a queue
// may execute; negative means no cap.
//
// A claim takes either runs that are not limited or turns. Where both are due in the
// highest priority they are asked for in turns, each for its part of n; otherwise
// the one that alone is due there comes first, down to the priority in which the
// other is due. A wake-up does not say which of the two it is about: when runs that
// are not limited were looked for in vain, turns are asked for next.
func (p *Plan) Ask(n int, room func(queue string) int) Ask {
	b := &stepper{room: room, left: map[string]int{}, skip: map[store.LaneID]int{}}
	plain, turns, lowest := p.top(b)
	switch {
	case turns == 0 && lowest == math.MinInt:
		return Ask{Steps: p.steps(n, math.MinInt, b), Limit: n}
	case p.repays(b, plain):
		oldest := p.oldest(b)
		p.repaid = true
		n = max((p.taken+n)/fairness, 1)
		if oldest.Line != 0 {
			return p.admissions([]*lane{oldest}, oldest.Priority, n, b)
		}
		b.add(oldest, n)
		return Ask{Steps: b.steps, Limit: n}
	}
	p.repaid = false
	limited := plain == 0 || turns > 0 && (!p.limited || p.vain)
	if plain > 0 && turns > 0 && !p.vain { // each gets its part
		part := plain
		if limited {
			part = turns
		}
		n = min(max((n*part+plain+turns-1)/(plain+turns), minShare), n)
	}
	if limited {
		return p.admissions(p.turnsDownTo(lowest), lowest, n, b)
	}
	return Ask{Steps: p.steps(n, lowest, b), Limit: n}
}

// AskAlone returns the claim of one isolated run, of another line each time.
func (p *Plan) AskAlone(try int) Ask {
	head := p.isolated[try%len(p.isolated)]
	if head.Line != 0 {
		return Ask{Admissions: []store.Admission{{Line: head.Line, Take: turnsAlone}}, Lanes: []store.LaneID{head.Line}, Limit: 1}
	}
	return Ask{Steps: []store.Step{{Lane: head.Lane, Take: 1}}, Limit: 1}
}

// turnsAlone is how many turns are examined for one isolated run: others' gates may
// be full.
const turnsAlone = 10

// top counts the lanes and the lines of turns that are due in the highest priority in
// which anything is, and returns how far down a claim of what is due there may go: to
// the priority in which the other is due too.
func (p *Plan) top(b *stepper) (plain, turns, lowest int) {
	highest := math.MinInt
	for _, l := range p.lanes {
		if !l.due || l.Line == 0 && b.rest(l.Queue) == 0 {
			continue
		}
		limited := l.Line != 0
		switch {
		case l.Priority < highest && plain > 0 && turns > 0:
			return plain, turns, highest
		case l.Priority < highest:
			if limited == (plain > 0) {
				return plain, turns, l.Priority
			}
		case limited:
			highest, turns = l.Priority, turns+1
		default:
			highest, plain = l.Priority, plain+1
		}
	}
	if plain > 0 && turns > 0 {
		return plain, turns, highest
	}
	return plain, turns, math.MinInt
}

// repays reports whether the next claim is for the oldest due of any priority alone,
// as what is due first is of the other kind.
func (p *Plan) repays(b *stepper, plain int) bool {
	oldest := p.oldest(b)
	return oldest != nil && !p.repaid && (oldest.Line == 0) != (plain > 0)
}

// turnsDownTo are the lines of turns that are due in a priority or above.
func (p *Plan) turnsDownTo(lowest int) (lines []*lane) {
	for _, l := range p.lanes {
		if l.due && l.Line != 0 && l.Priority >= lowest && len(lines) < maxSteps {
			lines = append(lines, l)
		}
	}
	return lines
}

// admissions asks for turns of these lines, and for runs of the lanes of a priority
// or above that have room.
func (p *Plan) admissions(lines []*lane, lowest, n int, b *stepper) Ask {
	if lowest == math.MinInt && len(lines) > 0 {
		lowest = lines[len(lines)-1].Priority
	}
	ask := Ask{Limit: n}
	for _, l := range p.lanes {
		rest := -1
		if l.Line == 0 {
			rest = b.rest(l.Queue)
		}
		if l.Line != 0 || l.Priority < lowest || rest == 0 {
			continue
		}
		if ask.Lanes = append(ask.Lanes, l.Lane); rest > 0 {
			ask.Limit = min(ask.Limit, rest)
		}
	}
	if len(ask.Lanes) == 0 {
		return Ask{Limit: n}
	}
	for _, l := range lines {
		ask.Admissions = append(ask.Admissions, store.Admission{Line: l.Line, Take: ask.Limit})
	}
	return ask
}

// applyAdmission records what a claim of turns has brought: where it brought less
// than was asked for, the lines are read again.
func (p *Plan) applyAdmission(request *store.ClaimRequest, got int) {
	if got >= request.Limit {
		return
	}
	p.outdated = true
	for _, l := range p.lanes {
		for _, admission := range request.Admissions {
			if l.Line == admission.Line {
				l.due = false
			}
		}
	}
}
