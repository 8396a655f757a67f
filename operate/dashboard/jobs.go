package dashboard

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// jobList is the page of the jobs.
type jobList struct {
	operate.JobList

	Pager pager
}

func (d *dashboard) jobs(ctx context.Context, r *request) (view, error) {
	if name := r.form.Get("name"); name != "" {
		return d.job(ctx, r, name)
	}
	list, err := d.operator.Jobs(ctx, r.part())
	return view{page: "jobs", title: "Jobs", section: "jobs", data: jobList{list, r.pagerOf("jobs", list.Next)}}, err
}

// jobPage is the page of one job: what waits of it, what was done, and what it declares.
type jobPage struct {
	Name     string
	Lanes    []operate.JobView
	Pager    pager          // of the lanes
	Declared *store.JobInfo // nil: no worker has declared it
	Charts   []*chart
	Ranges   []rangeLink
	Problems []operate.ProblemGroup
}

// rangeLink leads to the charts of another time.
type rangeLink struct {
	Word, To string
	Chosen   bool
}

// charted reads the series that an address asks for, and draws it.
func (d *dashboard) charted(ctx context.Context, r *request, of operate.SeriesRequest, path string, pairs ...any) ([]*chart, []rangeLink, error) {
	of.Range = operate.SeriesRange(r.form.Get("range"))
	if of.Range == "" {
		of.Range = operate.LastHour
	}
	series, err := d.operator.Series(ctx, of)
	if err != nil {
		return nil, nil, err
	}
	var ranges []rangeLink
	for _, one := range []operate.SeriesRange{operate.LastHour, operate.LastDay, operate.LastWeek, operate.LastMonth} {
		ranges = append(ranges, rangeLink{string(one), link(path, append([]any{"range", one}, pairs...)...), one == of.Range})
	}
	return chartsOf(&series), ranges, nil
}

func (d *dashboard) job(ctx context.Context, r *request, name string) (view, error) {
	list, err := d.operator.Jobs(ctx, r.part(name))
	if err != nil {
		return view{}, err
	}
	shown := jobPage{Name: name, Lanes: list.Jobs, Pager: r.pagerOf("jobs", list.Next, "name", name)}
	if len(shown.Lanes) == 0 && shown.Pager.First {
		return view{}, fmt.Errorf("job %q: %w", clip(200, name), store.ErrNotFound)
	}
	if job, err := d.operator.Job(ctx, name); err == nil {
		shown.Declared = &job
	}
	err = together(ctx, func(ctx context.Context) error {
		problems, err := r.do.Problems(ctx, operate.ProblemFilter{Jobs: []string{name}})
		shown.Problems = problems.Groups
		return err
	}, func(ctx context.Context) (err error) {
		shown.Charts, shown.Ranges, err = d.charted(ctx, r, operate.SeriesRequest{Job: name}, "jobs", "name", name)
		return err
	})
	return view{page: "job", title: name, section: "jobs", data: shown}, err
}
