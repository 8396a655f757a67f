package dashboard

import "context"

func (d *dashboard) jobs(ctx context.Context, _ *request) (view, error) {
	list, err := d.operator.Jobs(ctx)
	return view{page: "jobs", title: "Jobs", section: "jobs", data: list}, err
}
