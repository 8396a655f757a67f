package dashboard

import (
	"context"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// workerPage is the page of one worker.
type workerPage struct {
	store.WorkerInfo

	Runs []store.Record // that workers of its name execute
}

// workerList is the page of the workers.
type workerList struct {
	operate.WorkerList

	Pager pager
}

func (d *dashboard) workers(ctx context.Context, r *request) (view, error) {
	list, err := d.operator.Workers(ctx, r.part())
	return view{page: "workers", title: "Workers", section: "workers", data: workerList{list, r.pagerOf("workers", list.Next)}}, err
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
