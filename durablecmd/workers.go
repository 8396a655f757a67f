package durablecmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// workersVerb is the command workers.
type workersVerb struct {
	List workersListVerb `cmd:"" help:"List workers by name: those alive, and those that have been silent for less than a day."`
	Show workersShowVerb `cmd:"" help:"Show one worker."`
}

type (
	workersListVerb struct {
		watchFlag

		JSON bool `name:"json" help:"Print JSON."`
	}
	workersShowVerb struct {
		Name string `arg:"" help:"Name of the worker, or the first characters of its instance."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	jobsVerb struct {
		List jobsListVerb `cmd:"" help:"List jobs by name, on each queue."`
	}
	jobsListVerb struct {
		watchFlag

		JSON bool `name:"json" help:"Print JSON."`
	}
)

// Run prints the workers.
func (v workersListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Workers(ctx, operate.Part{})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Workers) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no workers")
			return err
		}
		table := p.newTable("INSTANCE", "STARTED", "VERSION", "JOBS", "QUEUES")
		table.row("WORKER", "STATE", "SEEN", "STARTED", "EXECUTING", "QUEUES", "JOBS", "VERSION", "INSTANCE")
		for i := range list.Workers {
			w := &list.Workers[i]
			table.row(w.Name, workerState(w), brief(time.Duration(w.SeenAgo))+" ago", ago(w.StartedAt, w.SeenAt.Add(time.Duration(w.SeenAgo))),
				fmt.Sprintf("%d/%d", w.Executing, w.Capacity), clipped(strings.Join(w.Queues, ","), 40), clipped(strings.Join(w.Jobs, ","), 40),
				orNone(w.Version), w.Instance.String()[:8])
		}
		return table.flush()
	})
}

// workerState is the first thing to know of a worker.
func workerState(w *store.WorkerInfo) string {
	if w.Stuck > 0 {
		return fmt.Sprintf("%s, %d stuck", w.State, w.Stuck)
	}
	return string(w.State)
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Run prints a worker.
func (v workersShowVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		w, err := o.Worker(ctx, v.Name)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(w)
		}
		table := p.newTable()
		table.row("name", w.Name)
		table.row("instance", w.Instance.String())
		table.row("state", workerState(&w))
		table.row("version", orNone(w.Version))
		table.row("started", w.StartedAt.Format(time.RFC3339))
		table.row("seen", fmt.Sprintf("%s (%s ago; every %v)", w.SeenAt.Format(time.RFC3339), brief(time.Duration(w.SeenAgo)), time.Duration(w.Every)))
		table.row("executing", fmt.Sprintf("%d of %d", w.Executing, w.Capacity))
		table.row("leases", strconv.Itoa(w.Leases))
		table.row("heartbeat lag", time.Duration(w.BeatLag).Round(time.Microsecond).String())
		table.row("queues", strings.Join(w.Queues, ", "))
		jobs := strings.Join(w.Jobs, ", ")
		if w.More {
			jobs += ", and more"
		}
		table.row("jobs", jobs)
		return table.flush()
	})
}

// Run prints the jobs.
func (v jobsListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Jobs(ctx, operate.Part{})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Jobs) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no jobs")
			return err
		}
		table := p.newTable("RUNS/MIN", "OLDEST DUE", "DUE", "RUNNING")
		header := []string{"JOB", "QUEUE", "PENDING", "DUE", "RUNNING", "RUNS/MIN", "OLDEST DUE", "SERVED BY"}
		anyLimited := slices.ContainsFunc(list.Jobs, func(j operate.JobView) bool { return len(j.Limits) > 0 })
		if anyLimited {
			header = append(header, "LIMITS")
		}
		table.row(header...)
		for _, j := range list.Jobs {
			cells := []string{j.Job, j.Queue, number(j.Pending), number(j.Due), number(j.Running), rate(j.Rate), agoOrDash(j.OldestDue, p.now()), servedBy(j.Work)}
			if anyLimited {
				cells = append(cells, clipped(jobLimits(j.Limits), 60))
			}
			table.row(cells...)
		}
		return table.flush()
	})
}

// jobLimits are the limits of a job's runs, each with where its key comes from.
func jobLimits(limits []store.JobLimit) string {
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = limits[i].Default.String()
		switch {
		case limits[i].Computed:
			texts[i] += "=(computed)"
		case limits[i].Template != "":
			texts[i] += "=" + limits[i].Template
		}
	}
	return orNone(strings.Join(texts, ", "))
}

// servedBy names few workers, and counts many.
func servedBy(w operate.Work) string {
	switch {
	case w.ServedBy == 0:
		return "none"
	case w.ServedBy <= 2:
		return strings.Join(w.Workers, ", ")
	default:
		return fmt.Sprintf("%d workers", w.ServedBy)
	}
}

// rate is a number of runs a minute.
func rate(perMinute float64) string {
	if perMinute > 0 && perMinute < 10 {
		return strconv.FormatFloat(perMinute, 'f', 1, 64)
	}
	return strconv.FormatFloat(perMinute, 'f', 0, 64)
}

// warnUnserved says so when no living worker takes a run that was stored. That it could
// not be found out is no reason to fail.
func (p *program) warnUnserved(ctx context.Context, o *operate.Operator, queue, job string) {
	if workers, err := o.ServedBy(ctx, queue, job); err == nil && len(workers) == 0 {
		fmt.Fprintf(p.stderr, "%s: no living worker serves job %s on queue %s: the run waits until one does\n", p.name, printable(job), printable(queue))
	}
}
