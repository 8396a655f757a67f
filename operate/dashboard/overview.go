package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// overview is the first page: is it all right, and what is not.
type overview struct {
	figures

	Attention []operate.Attention
	Queues    []operate.QueueView
	Rate      float64 // attempts a minute, now
	Full      int     // how much of the capacity is in use, in percent
	OldestOn  string  // the queue of the run that is due for longest; empty: none is
	OldestTo  string  // the runs of that queue that wait
	Latest    []store.Record
	Charts    []*chart
	Ranges    []rangeLink
	DeadRuns  string // how many, in all; empty: not known yet
	Fresh     bool   // nothing has ever run here
}

func (d *dashboard) overview(ctx context.Context, r *request) (view, error) {
	shown := overview{figures: d.headers.shown()}
	shown.DeadRuns = countOf(shown.Counts, store.Dead)
	err := together(ctx, func(ctx context.Context) error {
		attention, err := r.do.Attention(ctx)
		shown.Attention = attention.Items
		return err
	}, func(ctx context.Context) error {
		queues, err := d.operator.Queues(ctx, operate.Part{})
		shown.Queues = queues.Queues
		return err
	}, func(ctx context.Context) error {
		list, err := r.do.Runs(ctx, store.Filter{States: []store.State{store.Dead}, Limit: 5})
		if shown.Latest = list.Runs; err != nil || len(list.Runs) > 0 {
			return err
		}
		newest, err := r.do.Runs(ctx, store.Filter{Limit: 1})
		shown.Fresh = len(newest.Runs) == 0
		return err
	}, func(ctx context.Context) (err error) {
		shown.Charts, shown.Ranges, err = d.charted(ctx, r, operate.SeriesRequest{}, "")
		return err
	})
	if err != nil {
		return view{}, err
	}
	shown.oldest()
	shown.Queues = busiest(shown.Queues, queuesShown)
	if shown.Capacity.N > 0 {
		shown.Full = shareOf(shown.Executing.N / shown.Capacity.N)
	}
	return view{page: "overview", title: "Overview", section: "overview", data: shown}, nil
}

// queuesShown is how many queues the overview has.
const queuesShown = 20

// busiest are the queues with the most runs that wait or execute, so many at most, by name.
func busiest(queues []operate.QueueView, most int) []operate.QueueView {
	if len(queues) <= most {
		return queues
	}
	slices.SortStableFunc(queues, func(a, b operate.QueueView) int {
		return cmp.Or(cmp.Compare(b.Pending.N, a.Pending.N), cmp.Compare(b.Running.N, a.Running.N))
	})
	queues = queues[:most]
	slices.SortFunc(queues, func(a, b operate.QueueView) int { return cmp.Compare(a.Name, b.Name) })
	return queues
}

// oldest adds the rates of the queues, and finds the one whose oldest run is due for longest.
func (o *overview) oldest() {
	var since *time.Time
	for i := range o.Queues {
		queue := &o.Queues[i]
		o.Rate += queue.Rate
		if !queue.Paused && queue.OldestDue != nil && !queue.OldestDue.After(o.At) && (since == nil || queue.OldestDue.Before(*since)) {
			since, o.OldestOn = queue.OldestDue, queue.Name
		}
	}
	o.OldestTo = link("runs", "state", store.Pending)
	if o.OldestOn != "" {
		o.OldestTo = link("runs", "state", store.Pending, "queue", o.OldestOn)
	}
}

// attended is where to look at what needs attention: an address, and the word on the
// button.
type attended struct{ To, Word string }

// attendedList are the lists of what each kind is about.
var attendedList = map[operate.AttentionKind]attended{ //nolint:gochecknoglobals // a constant table
	operate.AttentionOverdue: {"queues", "Queues"}, operate.AttentionIsolatedWaiting: {"queues", "Queues"}, operate.AttentionDead: {"problems", "Problems"}, operate.AttentionHeld: {"problems", "Problems"},
	operate.AttentionScheduleFault: {"schedules", "Schedules"}, operate.AttentionScheduleLate: {"schedules", "Schedules"},
	operate.AttentionScheduleOrphaned: {"schedules", "Schedules"}, operate.AttentionLimitFull: {"limits", "Limits"}, operate.AttentionLimitShut: {"limits", "Limits"},
}

func attendedOf(a operate.Attention) attended {
	if to, many := attendedList[a.Kind]; many && a.Subject == "" { // of many
		return to
	}
	switch a.Kind {
	case operate.AttentionPausedWithWork:
		return attended{"queues", "Queues"}
	case operate.AttentionDead:
		return attended{link("problems", "job", a.Job), "Problems"}
	case operate.AttentionHeld:
		return attended{"runs/" + a.Subject, "Run"}
	case operate.AttentionUnserved:
		if a.Job == "" { // of many
			return attended{"jobs", "Jobs"}
		}
		return attended{link("runs", "state", "pending", "job", a.Job, "queue", a.Queue), "Runs"}
	case operate.AttentionOverdue, operate.AttentionIsolatedWaiting:
		return attended{link("runs", "state", "pending", "queue", a.Queue), "Runs"}
	case operate.AttentionScheduleFault, operate.AttentionScheduleLate, operate.AttentionScheduleOrphaned:
		return attended{link("schedules", "name", a.Subject), "Schedule"}
	case operate.AttentionLimitFull, operate.AttentionLimitFault, operate.AttentionLimitShut:
		return attended{link("limits", "name", a.Subject), "Limit"}
	case operate.AttentionLockOverdue:
		return attended{"locks", "Locks"}
	default:
		return attended{"workers", "Workers"}
	}
}
