package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// JobFailures is what happened to the attempts of one job.
type JobFailures struct {
	Job       string `json:"job"`
	Ended     int64  `json:"ended"`     // attempts
	Failed    int64  `json:"failed"`    // and were retried
	Dead      int64  `json:"dead"`      // and were the last of their run
	Cancelled int64  `json:"cancelled"` // because of the run's cancellation
}

// minutesKept is for how long figures by the minute are kept.
const minutesKept = 6 * time.Hour

// Failures lists the jobs whose attempts have failed since an instant, the one with the
// most failures first, as workers have reported them: by the minute for the last six hours,
// otherwise by the quarter of an hour, for thirty days.
func (o *Operator) Failures(ctx context.Context, since time.Time) ([]JobFailures, error) {
	survey, err := o.survey(ctx)
	if err != nil {
		return nil, err
	}
	query := store.SeriesQuery{Span: store.Minute, Scope: store.EachLane, Within: max(survey.At.Sub(since), time.Minute)}
	if query.Within > minutesKept {
		query.Span = store.Quarter
	}
	query.Within = min(query.Within, ranges[LastMonth].within)
	query.Step, query.NoTimes = 24*time.Hour, true // their sum is all that is asked for
	points, err := o.store.Series(ctx, query)
	if err != nil {
		return nil, err
	}
	at := map[string]*JobFailures{}
	for i := range points {
		p := &points[i]
		of := at[p.Job]
		if of == nil {
			of = &JobFailures{Job: p.Job}
			at[p.Job] = of
		}
		of.Ended, of.Failed, of.Dead, of.Cancelled = of.Ended+p.Ended(), of.Failed+p.Failed, of.Dead+p.Dead, of.Cancelled+p.Cancelled
	}
	list := []JobFailures{}
	for _, of := range at {
		if of.Failed+of.Dead > 0 {
			list = append(list, *of)
		}
	}
	slices.SortFunc(list, func(a, b JobFailures) int {
		return cmp.Or(cmp.Compare(b.Failed+b.Dead, a.Failed+a.Dead), cmp.Compare(a.Job, b.Job))
	})
	return list, nil
}
