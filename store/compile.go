package store

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// Compile turns the rule and the plan into a rule that computes instants.
func (s *Schedule) Compile() (cron.Rule, error) {
	if err := s.checkTexts(); err != nil {
		return cron.Rule{}, err
	}
	c := cron.Spec{Expression: s.Rule.Cron, Zone: s.Rule.Zone, Every: time.Duration(s.Rule.Every), Anchor: s.Rule.Anchor, Once: s.Rule.Once,
		Start: s.Plan.Start, End: s.Plan.End, Shift: s.Shift()}
	for _, w := range s.Plan.Blackouts {
		c.Blackouts = append(c.Blackouts, cron.Window(w))
	}
	return cron.Compile(c)
}

// Shift is how much later all its occurrences are than the rule says.
func (s *Schedule) Shift() time.Duration { return cron.Share(time.Duration(s.Plan.Spread), s.Name) }

// RunAt makes the run of an occurrence that is due at an instant.
func (s *Schedule) RunAt(due time.Time) NewRun {
	return NewRun{ID: NewRunID(), Job: s.Job, Queue: s.Queue, Priority: s.Priority, Args: s.Args, MaxAttempts: s.MaxAttempts,
		Timeout: s.Timeout, OnCrash: s.OnCrash, Tags: s.Tags, Metadata: s.Metadata, Limits: s.Limits, At: due}
}

// RunNow makes a run of the schedule outside its rule, due immediately.
func (s *Schedule) RunNow() NewRun { return s.RunAt(time.Time{}) }

// Preview lists the first n occurrences after an instant. It does not know
// what overlap and catch-up will make of them.
func (s *Schedule) Preview(after time.Time, n int) ([]time.Time, error) {
	rule, err := s.Compile()
	if err != nil {
		return nil, err
	}
	found, err := rule.Search(context.Background()).Preview(after, n)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	return found, nil
}
