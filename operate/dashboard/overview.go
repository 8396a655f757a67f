package dashboard

import (
	"context"

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
	Latest    []store.Record
	Charts    []*chart
	Ranges    []rangeLink
	DeadRuns  string // how many, in all; empty: not known yet
	Fresh     bool   // nothing has ever run here
}

func (d *dashboard) overview(ctx context.Context, r *request) (view, error) {
	shown := overview{figures: d.headers.shown()}
	shown.DeadRuns = countOf(shown.Counts, store.Dead)
	attention, err := r.do.Attention(ctx)
	if err != nil {
		return view{}, err
	}
	queues, err := d.operator.Queues(ctx)
	if err != nil {
		return view{}, err
	}
	list, err := r.do.Runs(ctx, store.Filter{States: []store.State{store.Dead}, Limit: 5})
	if err != nil {
		return view{}, err
	}
	if shown.Charts, shown.Ranges, err = d.charted(ctx, r, operate.SeriesRequest{}, ""); err != nil {
		return view{}, err
	}
	shown.Attention, shown.Queues, shown.Latest = attention.Items, queues.Queues, list.Runs
	for _, queue := range shown.Queues {
		shown.Rate += queue.Rate
	}
	if shown.Capacity.N > 0 {
		shown.Full = shareOf(shown.Executing.N / shown.Capacity.N)
	}
	newest, err := r.do.Runs(ctx, store.Filter{Limit: 1})
	shown.Fresh = len(newest.Runs) == 0
	return view{page: "overview", title: "Overview", section: "overview", data: shown}, err
}

// attended is where to look at what needs attention: an address, and the word on the
// button.
type attended struct{ To, Word string }

func attendedOf(a operate.Attention) attended {
	switch a.Kind {
	case operate.AttentionPausedWithWork:
		return attended{"queues", "Queues"}
	case operate.AttentionDead:
		return attended{link("problems", "job", a.Job), "Problems"}
	case operate.AttentionUnserved:
		return attended{link("runs", "state", "pending", "job", a.Job, "queue", a.Queue), "Runs"}
	case operate.AttentionOverdue, operate.AttentionIsolatedWaiting:
		return attended{link("runs", "state", "pending", "queue", a.Queue), "Runs"}
	case operate.AttentionScheduleFault, operate.AttentionScheduleLate, operate.AttentionScheduleOrphaned:
		return attended{link("schedules", "name", a.Subject), "Schedule"}
	case operate.AttentionLimitFull:
		return attended{link("limits", "name", a.Subject), "Limit"}
	case operate.AttentionLockOverdue:
		return attended{"locks", "Locks"}
	default:
		return attended{"workers", "Workers"}
	}
}
