package dashboard

import (
	"context"
	"slices"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// health shows what the command doctor finds.
func (d *dashboard) health(ctx context.Context, _ *request) (view, error) {
	findings, err := d.operator.Examine(ctx)
	if err != nil {
		return view{}, err
	}
	all := slices.Concat(findings, d.operator.ExamineServing(ctx), d.operator.ExamineSchedules(ctx))
	slices.SortStableFunc(all, func(a, b store.Finding) int { return int(b.Level) - int(a.Level) })
	return view{page: "health", title: "Health", section: "health", data: operate.Diagnose(all)}, nil
}
