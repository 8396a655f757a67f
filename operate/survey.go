package operate

import (
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// figuresOf is over how long the failures and the dead runs of a survey are counted.
const figuresOf = time.Hour

// Survey reads the figures that say whether all is well.
func (o *Operator) Survey(ctx context.Context) (Survey, error) {
	var f fleet
	var err error
	if f.workers, err = o.workers(ctx); err != nil {
		return Survey{}, err
	}
	if f.survey, err = o.survey(ctx); err != nil {
		return Survey{}, err
	}
	steps, err := o.hour(ctx)
	if err != nil {
		return Survey{}, err
	}
	dead, err := o.dead(ctx, &f.survey)
	if err != nil {
		return Survey{}, err
	}
	return f.figures(steps, len(dead)), nil
}

// figures puts the figures together, from what was done by the minute and how many runs
// have died.
func (f *fleet) figures(steps []store.SeriesPoint, dead int) Survey {
	s := Survey{At: f.survey.At, Partial: f.survey.Partial, Dead: Figure{N: float64(dead), Is: Exact}}
	if dead >= store.MaxProblems {
		s.Dead.Is = AtLeast
	}
	var due, paused store.Count
	for i := range f.survey.Lanes {
		if lane := &f.survey.Lanes[i]; lane.Paused {
			paused = paused.Plus(lane.Due)
		} else if due = due.Plus(lane.Due); lane.Due.N > 0 {
			if age := store.Duration(max(f.survey.At.Sub(*lane.OldestDue), 0)); s.OldestDue == nil || age > *s.OldestDue {
				s.OldestDue = &age
			}
		}
	}
	due.AtLeast, paused.AtLeast = due.AtLeast || s.Partial, paused.AtLeast || s.Partial
	s.Due, s.Paused = figureOf(due), figureOf(paused)
	asOf := f.asOf()
	s.Executing, s.Capacity = Figure{Is: Reported, AsOf: asOf}, Figure{Is: Reported, AsOf: asOf}
	s.Alive, s.Silent, s.Ended = Figure{Is: Exact}, Figure{Is: Exact}, Figure{Is: Reported, AsOf: asOf}
	for i := range f.workers {
		w := &f.workers[i]
		if w.State == store.Silent {
			s.Silent.N++
			continue
		}
		s.Alive.N++
		s.Executing.N, s.Capacity.N = s.Executing.N+float64(w.Executing), s.Capacity.N+float64(w.Capacity)
	}
	var did store.Tally
	for i := range steps {
		did.Add(&steps[i].Tally)
	}
	if s.Ended.N = float64(did.Ended()); s.Ended.N > 0 {
		s.Failed = &Figure{N: float64(did.Failed+did.Dead) / s.Ended.N, Is: Reported, AsOf: asOf}
	}
	return s
}

// asOf is the oldest of the last reports of the living workers.
func (f *fleet) asOf() (oldest *time.Time) {
	for i := range f.workers {
		if w := &f.workers[i]; w.State != store.Silent && (oldest == nil || w.SeenAt.Before(*oldest)) {
			oldest = &w.SeenAt
		}
	}
	return oldest
}

func figureOf(n store.Count) Figure {
	switch {
	case n.AtLeast:
		return Figure{N: float64(n.N), Is: AtLeast}
	case n.Estimated:
		return Figure{N: float64(n.N), Is: About}
	default:
		return Figure{N: float64(n.N), Is: Exact}
	}
}

// Attention lists what needs attention, the worst first. Locks are examined when the
// Operator has them.
func (o *Operator) Attention(ctx context.Context) (AttentionList, error) {
	facts, err := o.attentionFacts(ctx)
	if err != nil {
		return AttentionList{Items: []Attention{}}, err
	}
	return AttentionList{At: facts.Survey.At, Items: Attend(facts)}, nil
}

const (
	pausesRead = 20   // paused queues of which it is found out who has paused them
	locksRead  = 1000 // locks that are held
)

func (o *Operator) attentionFacts(ctx context.Context) (facts AttentionFacts, err error) {
	if facts.Workers, err = o.workers(ctx); err != nil {
		return facts, err
	}
	if facts.Survey, err = o.survey(ctx); err != nil {
		return facts, err
	}
	if facts.Dead, err = o.dead(ctx, &facts.Survey); err != nil {
		return facts, err
	}
	facts.Dead = o.shown(facts.Dead)
	if facts.Held, err = o.store.Holds(ctx); err != nil {
		return facts, err
	}
	if facts.Schedules, err = o.store.ListSchedules(ctx); err != nil {
		return facts, err
	}
	if facts.Limits, err = o.store.ListLimits(ctx, store.LimitFilter{Caps: true}); err != nil {
		return facts, err
	}
	if facts.Shut, err = o.shut(ctx, facts.Limits); err != nil {
		return facts, err
	}
	if facts.Pauses, err = o.pauses(ctx, &facts.Survey); err != nil || o.config.Locks == nil {
		return facts, err
	}
	if facts.Locks, err = o.config.Locks.ListLocks(ctx, "", locksRead); err != nil {
		return facts, err
	}
	facts.Waits, err = o.config.Locks.ListWaits(ctx, "", locksRead)
	return facts, err
}

// shut finds out who has last changed the limits that admit nothing, for which runs wait.
func (o *Operator) shut(ctx context.Context, limits []store.LimitInfo) (map[string]store.Change, error) {
	shut := map[string]store.Change{}
	for i := range limits {
		if !isShut(&limits[i]) || len(shut) == pausesRead {
			continue
		}
		name := limits[i].Name
		page, err := o.store.Changes(ctx, store.ChangeFilter{Kind: rules.KindLimit, Subject: name, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, change := range page.Changes {
			shut[name] = change
		}
	}
	return shut, nil
}

// pauses finds out who has paused the queues on which runs are due.
func (o *Operator) pauses(ctx context.Context, survey *store.Survey) (map[string]store.Change, error) {
	var queues []string
	for i := range survey.Lanes {
		if lane := &survey.Lanes[i]; len(queues) < pausesRead && lane.Paused && lane.Due.N > 0 && !slices.Contains(queues, lane.Queue) {
			queues = append(queues, lane.Queue)
		}
	}
	pauses := map[string]store.Change{}
	for _, queue := range queues {
		page, err := o.store.Changes(ctx, store.ChangeFilter{Kind: rules.KindQueue, Subject: queue, Action: string(store.PauseQueue), Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, change := range page.Changes {
			pauses[queue] = change
		}
	}
	return pauses, nil
}
