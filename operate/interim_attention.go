package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

const (
	lateAfter     = 5 * time.Minute  // how old due runs are before they are late
	fullFor       = 10 * time.Minute // how long runs wait for a limit before it is worth a line
	attentionMost = 20               // lines of one kind
)

// attentions collects what needs attention.
type attentions []Attention

func (a *attentions) add(level store.Level, kind AttentionKind, name, hint, format string, args ...any) {
	*a = append(*a, Attention{Level: level, Kind: kind, Subject: name, Next: []Remedy{{Role: RoleOperator, Text: hint}}, Text: fmt.Sprintf(format, args...)})
}

// Survey reads the figures.
func (o *Operator) Survey(ctx context.Context) (v Survey, err error) {
	f, err := o.fleet(ctx)
	if err != nil {
		return v, err
	}
	v.At = f.survey.At
	var oldest *time.Time
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if lane.Paused {
			v.Paused.N += float64(lane.Due.N)
			continue
		}
		v.Due.N += float64(lane.Due.N)
		if lane.Due.N > 0 && lane.OldestDue != nil && (oldest == nil || lane.OldestDue.Before(*oldest)) {
			oldest = lane.OldestDue
		}
	}
	if oldest != nil {
		age := store.Duration(v.At.Sub(*oldest))
		v.OldestDue = &age
	}
	for i := range f.workers {
		w := &f.workers[i]
		if w.State == store.Silent {
			v.Silent.N++
			continue
		}
		v.Alive.N++
		v.Capacity.N += float64(w.Capacity)
		v.Executing.N += float64(w.Executing)
	}
	steps, err := o.store.Series(ctx, store.SeriesQuery{Span: store.Minute, Scope: store.AllLanes, Within: time.Hour})
	if err != nil {
		return v, err
	}
	var sum store.Tally
	for i := range steps {
		sum.Add(&steps[i].Tally)
	}
	v.Dead.N, v.Ended.N = float64(sum.Dead), float64(sum.Ended())
	if sum.Ended() > 0 {
		v.Failed = &Figure{N: float64(sum.Failed+sum.Dead) / float64(sum.Ended()), Is: About}
	}
	return v, nil
}

// Attention lists what needs attention.
func (o *Operator) Attention(ctx context.Context) (AttentionList, error) {
	f, err := o.fleet(ctx)
	if err != nil {
		return AttentionList{}, err
	}
	queues, err := o.store.Queues(ctx)
	if err != nil {
		return AttentionList{}, err
	}
	steps, err := o.store.Series(ctx, store.SeriesQuery{Span: store.Minute, Scope: store.EachLane, Within: time.Hour})
	if err != nil {
		return AttentionList{}, err
	}
	items, err := o.attention(ctx, &f, queues, steps)
	return AttentionList{At: f.survey.At, Items: items}, err
}

// attention looks for what needs it, the worst first.
func (o *Operator) attention(ctx context.Context, f *fleet, queues []store.QueueInfo, steps []store.SeriesPoint) ([]Attention, error) {
	found := attentions{}
	f.attendLanes(&found)
	f.attendWorkers(&found)
	for i := range queues {
		if q := &queues[i]; q.Paused && q.Pending.N > 0 {
			found.add(store.Warning, AttentionPausedWithWork, q.Name, "resume it when its runs may start", "queue %s is paused with %d pending runs", q.Name, q.Pending.N)
		}
	}
	attendDead(&found, steps)
	schedules, err := o.store.ListSchedules(ctx)
	if err != nil {
		return nil, err
	}
	attendSchedules(&found, schedules, f.survey.At)
	limits, err := o.store.ListLimits(ctx, store.LimitFilter{Caps: true})
	if err != nil {
		return nil, err
	}
	attendLimits(&found, limits, f.survey.At)
	slices.SortStableFunc(found, func(a, b Attention) int { return cmp.Compare(b.Level, a.Level) })
	return found, nil
}

// attendLanes looks for due runs that no worker takes.
func (f *fleet) attendLanes(found *attentions) {
	lines := 0
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if lane.Due.N == 0 || lane.Paused || lane.OldestDue == nil || lines == attentionMost {
			continue
		}
		age := f.survey.At.Sub(*lane.OldestDue).Round(time.Second)
		serves := func(w store.WorkerInfo) bool { return w.Serves(lane.Queue, lane.Job) }
		switch {
		case !slices.ContainsFunc(f.workers, serves):
			found.add(store.Failed, AttentionUnserved, lane.Job, "start a worker that has the job and serves the queue"+f.advice(lane),
				"no living worker serves job %s on queue %s: %d due, oldest %v%s", lane.Job, lane.Queue, lane.Due.N, age, f.last(lane))
		case age > lateAfter:
			found.add(store.Warning, AttentionOverdue, lane.Job, "look at what its workers execute; add capacity",
				"job %s on queue %s is late: %d due, oldest %v", lane.Job, lane.Queue, lane.Due.N, age)
		default:
			continue
		}
		lines++
	}
}

// attendWorkers looks for workers that do not report, or that have stuck handlers.
func (f *fleet) attendWorkers(found *attentions) {
	for i := range f.workers {
		w := &f.workers[i]
		if i >= attentionMost {
			return
		}
		if w.State == store.Silent {
			found.add(store.Warning, AttentionSilentWorkers, w.Name, "see why it ended: a worker that stops in order is not listed",
				"worker %s is silent, last seen %v ago", described(w), time.Duration(w.SeenAgo).Round(time.Second))
		}
		if w.Stuck > 0 && w.State != store.Silent {
			found.add(store.Warning, AttentionStuck, w.Name, "its handlers ignore their context; they end when the process does",
				"worker %s has %d handlers that do not return", described(w), w.Stuck)
		}
	}
}

// attendDead looks for jobs of which runs died within the last hour.
func attendDead(found *attentions, steps []store.SeriesPoint) {
	dead := map[string]int64{}
	var jobs []string
	for i := range steps {
		if steps[i].Dead == 0 {
			continue
		}
		if dead[steps[i].Job] == 0 {
			jobs = append(jobs, steps[i].Job)
		}
		dead[steps[i].Job] += steps[i].Dead
	}
	slices.SortFunc(jobs, func(a, b string) int { return cmp.Or(cmp.Compare(dead[b], dead[a]), cmp.Compare(a, b)) })
	for _, job := range jobs[:min(len(jobs), attentionMost)] {
		found.add(store.Warning, AttentionDead, job, "see what they failed of; retry them when it is repaired",
			"%d runs of %s died within the last hour", dead[job], job)
	}
}

// attendSchedules looks for schedules that cannot do what they say.
func attendSchedules(found *attentions, schedules []store.ScheduleRecord, now time.Time) {
	for i := range schedules {
		switch s := &schedules[i]; {
		case s.Paused:
		case s.Fault != nil:
			found.add(store.Failed, AttentionScheduleFault, s.Name, "correct its declaration, or edit it", "schedule %s cannot be evaluated: %s", s.Name, *s.Fault)
		case s.Orphaned:
			found.add(store.Warning, AttentionScheduleOrphaned, s.Name, "delete it, or deploy the code that declares it",
				"schedule %s still fires although no worker declares it", s.Name)
		case s.NextAt != nil && !s.Waiting && now.Sub(*s.NextAt) > time.Minute:
			found.add(store.Warning, AttentionScheduleLate, s.Name, "see that a worker runs: any of them evaluates all schedules",
				"schedule %s is late by %v", s.Name, now.Sub(*s.NextAt).Round(time.Second))
		}
	}
}

// attendLimits looks for limits that admit nothing.
func attendLimits(found *attentions, limits []store.LimitInfo, now time.Time) {
	for i := range limits {
		switch l := &limits[i]; {
		case l.Waiting.N == 0:
		case l.State == store.LimitDraining:
			found.add(store.Warning, AttentionLimitFull, l.Name, "resume it when runs may start again", "limit %s is draining with %d waiting runs", l.Name, l.Waiting.N)
		case l.Max == 0:
			found.add(store.Warning, AttentionLimitFull, l.Name, "set its max", "limit %s has a max of 0 and %d waiting runs", l.Name, l.Waiting.N)
		case l.NextAt != nil && now.Sub(*l.NextAt) > fullFor:
			found.add(store.Warning, AttentionLimitFull, l.Name, "see that workers serve the jobs of the waiting runs",
				"limit %s could have admitted a run %v ago", l.Name, now.Sub(*l.NextAt).Round(time.Second))
		}
	}
}

// Series reads what was done.
func (o *Operator) Series(ctx context.Context, r SeriesRequest) (Series, error) {
	span, n := store.Minute, 60
	if r.Range != LastHour {
		span, n = store.Quarter, 96
	}
	points, err := o.store.Series(ctx, store.SeriesQuery{Span: span, Scope: store.AllLanes, Within: time.Duration(n) * span.Length()})
	if err != nil {
		return Series{}, err
	}
	f, err := o.fleet(ctx)
	s := Series{Range: r.Range, At: f.survey.At, Step: store.Duration(span.Length())}
	first := f.survey.At.Truncate(span.Length()).Add(-time.Duration(n-1) * span.Length())
	for i := range n {
		step := SeriesStep{At: first.Add(time.Duration(i) * span.Length())}
		for _, p := range points {
			if p.At.Equal(step.At) {
				step.Enqueued, step.Succeeded, step.Failed, step.Dead, step.Cancelled, step.Busy = p.Enqueued, p.Succeeded, p.Failed, p.Dead, p.Cancelled, p.Busy
				step.Wait, step.Took = pct(p.Wait), pct(p.Took)
				s.Total.Succeeded += p.Succeeded
				s.Total.Failed += p.Failed
				s.Total.Dead += p.Dead
			}
		}
		s.Steps = append(s.Steps, step)
	}
	return s, err
}

func pct(b [store.Buckets]int64) (p Percentiles) {
	var sum int64
	for _, n := range b {
		sum += n
	}
	if sum == 0 {
		return p
	}
	bounds := store.BucketBounds()
	at := func(q float64) *store.Duration {
		var acc int64
		for i, n := range b {
			if acc += n; float64(acc) >= q*float64(sum) && n > 0 {
				d := store.Duration(bounds[min(i, len(bounds)-1)])
				return &d
			}
		}
		return nil
	}
	return Percentiles{at(.5), at(.95), at(.99)}
}
