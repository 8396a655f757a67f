package dashboard

import (
	"context"
	"slices"

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
	Ranges    []choice
	Fresh     bool // nothing has ever run here
}

func (d *dashboard) overview(ctx context.Context, r *request) (view, error) {
	shown := overview{figures: d.headers.shown()}
	attention, err := d.operator.Attention(ctx)
	if err != nil {
		return view{}, err
	}
	queues, err := d.operator.Queues(ctx)
	if err != nil {
		return view{}, err
	}
	list, err := d.operator.Runs(ctx, store.Filter{States: []store.State{store.Dead}, Limit: 5})
	if err != nil {
		return view{}, err
	}
	chosen := operate.SeriesRange(r.form.Get("range"))
	if chosen == "" {
		chosen = operate.LastHour
	}
	series, err := d.operator.Series(ctx, operate.SeriesRequest{Range: chosen})
	if err != nil {
		return view{}, err
	}
	shown.Charts = chartsOf(&series)
	for _, one := range []operate.SeriesRange{operate.LastHour, operate.LastDay, operate.LastWeek, operate.LastMonth} {
		shown.Ranges = append(shown.Ranges, choice{Value: string(one), Chosen: one == chosen})
	}
	shown.Attention, shown.Queues, shown.Latest = attention.Items, queues.Queues, list.Runs
	for _, queue := range shown.Queues {
		shown.Rate += queue.Rate
	}
	if shown.Capacity.N > 0 {
		shown.Full = shareOf(shown.Executing.N / shown.Capacity.N)
	}
	shown.Fresh = !slices.ContainsFunc(store.States(), func(s store.State) bool { return shown.Counts[s].N > 0 })
	return view{page: "overview", title: "Overview", section: "overview", data: shown}, nil
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
