package dashboard

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// workerPage is the page of one worker.
type workerPage struct {
	store.WorkerInfo

	Runs []store.Record // that it executes, as far as the newest running runs show
}

func (d *dashboard) workers(ctx context.Context, _ *request) (view, error) {
	list, err := d.operator.Workers(ctx)
	return view{page: "workers", title: "Workers", section: "workers", data: list}, err
}

func (d *dashboard) worker(ctx context.Context, r *request) (view, error) {
	worker, err := d.operator.Worker(ctx, r.PathValue("instance"))
	if err != nil {
		return view{}, err
	}
	shown := workerPage{WorkerInfo: worker}
	list, err := d.operator.Runs(ctx, store.Filter{States: []store.State{store.Running}, Limit: store.LargestPage})
	if err != nil {
		return view{}, err
	}
	for i := range list.Runs {
		if run := &list.Runs[i]; run.Worker != nil && *run.Worker == worker.Name {
			shown.Runs = append(shown.Runs, *run)
		}
	}
	return view{page: "worker", title: worker.Name, section: "workers", data: shown}, nil
}
