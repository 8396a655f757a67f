package dashboard

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// workerPage is the page of one worker.
type workerPage struct {
	store.WorkerInfo

	Runs []store.Record // that workers of its name execute
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
	list, err := r.do.Runs(ctx, store.Filter{States: []store.State{store.Running}, Worker: worker.Name, Limit: runsMost})
	if err != nil {
		return view{}, err
	}
	shown.Runs = list.Runs
	return view{page: "worker", title: worker.Name, section: "workers", data: shown}, nil
}
