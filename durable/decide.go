package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// lateness is how late an occurrence may be materialized before it counts as
// missed.
const lateness = time.Minute

// decide says what becomes of a schedule that is due at now, or not planned
// yet. It is pure but for the ids of the runs. It counts only if the search has
// not been given up.
func decide(rule *cron.Search, now time.Time, s *Schedule) Decision {
	if s.NextAt.IsZero() {
		s.NextAt = rule.Next(plannedFrom(s, now))
		if s.NextAt.IsZero() || s.NextAt.After(now) {
			return Decision{NextAt: s.NextAt}
		}
	}
	var d Decision
	first := s.NextAt
	if missed(s, now) {
		first = firstToCatchUp(s, rule, now)
		skipMissed(&d, rule, s.NextAt, first, now)
		if first.IsZero() {
			d.NextAt = rule.Next(now)
			return d
		}
	}
	overlap, unfinished, most := s.OverlapPolicy(), s.Unfinished, max(MaxCatchUp/cost(s), 1)
	for at := first; ; at = rule.Next(at) {
		switch {
		case at.IsZero() || at.After(now) || len(d.Occurrences) == most:
			d.NextAt = at
			return d
		case overlap == OverlapWait && s.Plan.Full(unfinished):
			d.NextAt, d.Waiting = at, nextWait(s, len(d.Occurrences) > 0)
			return d
		case overlap == OverlapSkip && s.Plan.Full(unfinished):
			skipRest(&d, rule, at, now)
			return d
		default:
			key := rule.Key(at)
			due := at.Add(cron.Share(time.Duration(s.Plan.Jitter), s.Name+" "+key))
			d.Occurrences = append(d.Occurrences, Occurrence{Key: key, Run: s.RunAt(due)})
			unfinished++
		}
	}
}

// plannedFrom is the instant after which the occurrences of a schedule without a
// plan count: when it was made, changed or resumed.
func plannedFrom(s *Schedule, now time.Time) time.Time {
	if s.LookAt.IsZero() || s.LookAt.After(now) {
		return now
	}
	return s.LookAt
}

// missed tells whether nobody was there when the schedule was due. One that
// waits was looked at again and again, and is not late because of it.
func missed(s *Schedule, now time.Time) bool {
	since := s.NextAt
	if s.Waiting > 0 {
		since = s.LookAt
	}
	return now.Sub(since) > lateness
}

// firstToCatchUp is the first occurrence that becomes a run although all up to
// now were missed; the zero time: none does.
func firstToCatchUp(s *Schedule, rule *cron.Search, now time.Time) time.Time {
	since := s.NextAt
	if within := time.Duration(s.Plan.CatchUpWithin); within > 0 && now.Add(-within).After(since) {
		since = now.Add(-within)
	}
	// Where another machine's zone data have planned it, the calendar may not
	// hold what the schedule stands at.
	var otherwise time.Time
	if since.Equal(s.NextAt) {
		otherwise = s.NextAt
	}
	switch s.CatchUpPolicy() {
	case CatchUpLatest:
		if last := rule.Last(since, now); !last.IsZero() {
			return last
		}
		return otherwise
	case CatchUpAll:
		most := s.Plan.CatchUpMost
		if most == 0 {
			most = MaxCatchUp
		}
		if recent := rule.Recent(since, now, most); len(recent) > 0 {
			return recent[0]
		}
		return otherwise
	}
	return time.Time{}
}

// skipMissed records what lies from an occurrence on and before the first one
// that is caught up.
func skipMissed(d *Decision, rule *cron.Search, from, first, now time.Time) {
	until := now
	if !first.IsZero() {
		until = first.Add(-time.Microsecond)
	}
	if until.Before(from) {
		return
	}
	last := rule.Last(from, until)
	if last.IsZero() {
		last = from
	}
	d.Skips = append(d.Skips, Skip{Reason: SkipMissed, First: from, Last: last})
}

// skipRest records an occurrence and all after it up to now: until then no run
// ends. There may be a million, where what has waited for weeks waits no more.
func skipRest(d *Decision, rule *cron.Search, at, now time.Time) {
	last := rule.Last(at, now)
	if last.IsZero() { // planned by another machine's zone data
		last = at
	}
	d.Skips = append(d.Skips, Skip{Reason: SkipOverlap, First: at, Last: last})
	d.NextAt = rule.Next(now)
}

// The first pause between two looks at a schedule that waits, and the longest.
const (
	ShortestWait = 25 * time.Millisecond
	longestWait  = time.Second
)

// nextWait is how long to pause before looking again whether the earlier run has
// ended: soon when it has just been made, then twice as long each time, so that
// the wait is longer by no more than the run itself took.
func nextWait(s *Schedule, begun bool) time.Duration {
	if begun || s.Waiting == 0 {
		return ShortestWait
	}
	return min(2*s.Waiting, longestWait)
}

// Planner decides about schedules one after another. It remembers rules that
// it has compiled, and bounds what one transaction stores.
type Planner struct {
	rules map[ruleKey]cron.Rule
	left  int // occurrences that this transaction may still take
}

// NewPlanner returns a planner that remembers no rule yet.
func NewPlanner() *Planner { return &Planner{rules: map[ruleKey]cron.Rule{}, left: maxOccurrences} }

// Begin gives the next transaction its whole number of occurrences.
func (p *Planner) Begin() { p.left = maxOccurrences }

// ruleKey is all that compile makes a rule of.
type ruleKey struct {
	rule       Rule
	start, end time.Time
	shift      time.Duration
	blackouts  string
}

func keyOf(s *Schedule) ruleKey {
	k := ruleKey{rule: s.Rule, start: s.Plan.Start, end: s.Plan.End, shift: s.Shift()}
	if len(s.Plan.Blackouts) > 0 {
		k.blackouts = fmt.Sprintf("%q", s.Plan.Blackouts)
	}
	return k
}

const (
	// maxRules bounds the rules that are remembered.
	maxRules = 10_000
	// maxOccurrences bounds the occurrences of one transaction: a schedule
	// that comes when it is used up is left due.
	maxOccurrences = 5000
	// argsOfOne is how large args count as one occurrence more.
	argsOfOne = 8 << 10
)

// Decide evaluates one schedule. What goes wrong is its own fault and no other's.
func (p *Planner) Decide(ctx context.Context, now time.Time, s Schedule) Decision {
	rule, err := p.rule(&s)
	if err != nil {
		return Decision{NextAt: s.NextAt, Fault: err.Error()}
	}
	search, planned := rule.Search(ctx), s.NextAt
	var d Decision
	if p.left > 0 {
		d = decide(search, now, &s)
	} else if d = (Decision{NextAt: planned, Waiting: s.Waiting}); planned.IsZero() { // or it would count as one that is over
		d.NextAt = search.Next(plannedFrom(&s, now))
	}
	if err := search.Err(); err != nil {
		return Decision{NextAt: planned, Fault: err.Error()}
	}
	p.left -= len(d.Occurrences) * cost(&s)
	return d
}

// rule compiles the rule of a schedule, unless it is remembered.
func (p *Planner) rule(s *Schedule) (cron.Rule, error) {
	key := keyOf(s)
	if rule, known := p.rules[key]; known {
		return rule, nil
	}
	rule, err := s.Compile()
	if err != nil {
		return rule, err
	}
	if len(p.rules) >= maxRules {
		clear(p.rules)
	}
	p.rules[key] = rule
	return rule, nil
}

// cost is what an occurrence takes of a transaction's: large args take more, for
// what a call cannot store in its time would be tried again for ever.
func cost(s *Schedule) int { return 1 + len(s.Args)/argsOfOne }
