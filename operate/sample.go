package operate

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Sample is what metrics show of the store.
type Sample struct {
	Survey        store.Survey
	Unserved      []store.LaneInfo // those of which runs are due, and that no living worker serves
	Alive, Silent int              // workers
	Limits        []store.LimitInfo
	Flagged       map[string]int // schedules, by what is wrong: fault, orphaned, late
	Lateness      time.Duration  // of the schedule that is the latest
}

// Sample reads what metrics show: a few bounded reads, which all processes need not make
// at the same time.
func (o *Operator) Sample(ctx context.Context) (s Sample, err error) {
	var f fleet
	if f.workers, err = o.workers(ctx); err != nil {
		return s, err
	}
	if f.survey, err = o.survey(ctx); err != nil {
		return s, err
	}
	if s.Limits, err = o.store.ListLimits(ctx, store.LimitFilter{Caps: true}); err != nil {
		return s, err
	}
	schedules, err := o.store.ListSchedules(ctx)
	if err != nil {
		return s, err
	}
	s.Survey, s.Alive, s.Silent = f.survey, f.alive(), len(f.workers)-f.alive()
	for i := range f.survey.Lanes {
		if lane := &f.survey.Lanes[i]; lane.Due.N > 0 && !lane.Paused && !f.served(lane) {
			s.Unserved = append(s.Unserved, *lane)
		}
	}
	s.Flagged = map[string]int{"fault": 0, "orphaned": 0, "late": 0}
	words := map[AttentionKind]string{AttentionScheduleFault: "fault", AttentionScheduleOrphaned: "orphaned", AttentionScheduleLate: "late"}
	for _, a := range attendSchedules(schedules, f.survey.At) {
		if s.Flagged[words[a.Kind]]++; a.Kind == AttentionScheduleLate {
			s.Lateness = max(s.Lateness, f.survey.At.Sub(*a.Since))
		}
	}
	return s, nil
}
