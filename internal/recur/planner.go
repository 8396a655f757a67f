package recur

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
	"github.com/durable-worker/durable-worker/store"
)

// Planner decides about schedules one after another. It remembers rules that
// it has compiled, and bounds what one transaction stores.
type Planner struct {
	rules map[ruleKey]cron.Rule
	ctx   context.Context // of this transaction: when it ends, a schedule that is being evaluated has a fault
	left  int             // occurrences that this transaction may still take
}

// NewPlanner returns a planner that remembers no rule yet.
func NewPlanner() *Planner { return &Planner{rules: map[ruleKey]cron.Rule{}} }

// Begin begins a transaction: Decide has until ctx ends, and its whole number of
// occurrences.
func (p *Planner) Begin(ctx context.Context) { p.ctx, p.left = ctx, maxOccurrences }

// ruleKey is all that compile reads.
type ruleKey struct {
	rule       store.Rule
	start, end time.Time
	shift      time.Duration
	blackouts  string
	policies   policies
}

// policies are what CheckPlan reads besides.
type policies struct {
	catchUp                store.CatchUpPolicy
	overlap                store.OverlapPolicy
	within, jitter, spread store.Duration
	most, unfinished       int
}

func keyOf(s *store.Schedule) ruleKey {
	k := ruleKey{rule: s.Rule, start: s.Plan.Start, end: s.Plan.End, shift: s.Shift(), policies: policies{
		s.Plan.CatchUp, s.Plan.Overlap, s.Plan.CatchUpWithin, s.Plan.Jitter, s.Plan.Spread, s.Plan.CatchUpMost, s.Plan.MaxUnfinished,
	}}
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

// Decide evaluates one schedule, after Begin. What goes wrong is its own fault and no other's.
func (p *Planner) Decide(now time.Time, s store.Schedule) store.Decision {
	rule, err := p.rule(&s)
	if err != nil {
		return store.Decision{NextAt: s.NextAt, Fault: err.Error()}
	}
	search, planned := rule.Search(p.ctx), s.NextAt
	var d store.Decision
	if p.left > 0 {
		d = decide(search, now, &s)
	} else if d = (store.Decision{NextAt: planned, Waiting: s.Waiting}); planned.IsZero() { // or it would count as one that is over
		d.NextAt = search.Next(plannedFrom(&s, now))
	}
	if err := search.Err(); err != nil {
		return store.Decision{NextAt: planned, Fault: err.Error()}
	}
	p.left -= len(d.Occurrences) * cost(&s)
	return d
}

// rule compiles the rule of a schedule, unless it is remembered. A plan that this
// program does not know, because a newer one or a person has stored it, is a fault.
func (p *Planner) rule(s *store.Schedule) (cron.Rule, error) {
	key := keyOf(s)
	if rule, known := p.rules[key]; known {
		return rule, nil
	}
	if err := s.CheckPlan(); err != nil {
		return cron.Rule{}, err
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
// what a call cannot store in its time would be tried again forever.
func cost(s *store.Schedule) int { return 1 + len(s.Args)/argsOfOne }
