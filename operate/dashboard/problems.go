package dashboard

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// problems is the page of the dead runs.
func (d *dashboard) problems(ctx context.Context, _ *request) (view, error) {
	list, err := d.operator.Runs(ctx, store.Filter{States: []store.State{store.Dead}, Limit: store.LargestPage})
	return view{page: "problems", title: "Problems", section: "problems", data: list}, err
}
