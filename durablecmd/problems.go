package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// problemsVerb is the command problems.
type problemsVerb struct {
	List        problemsListVerb   `cmd:"" help:"List dead runs, grouped by job and by what their errors have in common; acknowledged ones are left out."`
	Retry       problemsChangeVerb `cmd:"" help:"Make the runs of a group pending again, with a full set of attempts."`
	Acknowledge problemsChangeVerb `cmd:"" help:"Take the runs of a group off the list. They stay dead."`
	Delete      problemsChangeVerb `cmd:"" help:"Delete the runs of a group."`
}

type (
	problemsListVerb struct {
		watchFlag

		Job          []string `placeholder:"NAME" help:"Only runs of these jobs."`
		Queue        []string `placeholder:"NAME" help:"Only runs on these queues."`
		Acknowledged bool     `help:"List the acknowledged ones instead."`
		JSON         bool     `name:"json" help:"Print JSON."`
	}
	problemsChangeVerb struct {
		Group  string `arg:"" help:"Id of the group, from the list."`
		Yes    bool   `help:"Confirm the change (required)."`
		Reason string `help:"Reason, recorded in the audit log."`
		JSON   bool   `name:"json" help:"Print JSON."`

		Action store.RunAction `kong:"-"` // what it does with the runs: see newGrammar
	}
)

// Run prints the groups.
func (v problemsListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Problems(ctx, operate.ProblemFilter{Acknowledged: v.Acknowledged, Jobs: v.Job, Queues: v.Queue})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Groups) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no problems")
			return err
		}
		table := p.newTable()
		table.row("GROUP", "RUNS", "JOB", "QUEUES", "FIRST", "LAST", "NEWEST", "ERROR")
		for i := range list.Groups {
			g := &list.Groups[i]
			table.row(g.ID, strconv.Itoa(g.Count), g.Job, clipped(strings.Join(g.Queues, ","), 30), ago(g.FirstAt, p.now()), ago(g.LastAt, p.now()),
				g.Newest.String(), clipped(g.Like, 80))
		}
		if err := table.flush(); err != nil || !list.Read.AtLeast {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "\nof the newest %d dead runs; there are more\n", list.Read.N)
		return err
	})
}

// Run does one thing with all runs of a group.
func (v problemsChangeVerb) Run(ctx context.Context, p *program) error {
	if !v.Yes {
		return usage("this changes every run of the group: confirm with --yes")
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		done, err := o.ChangeProblem(ctx, v.Action, v.Group, v.Reason, nil)
		if done.Seen == 0 && err != nil {
			return err
		}
		if v.JSON {
			return errors.Join(p.printJSON(done), err)
		}
		_, failed := fmt.Fprintln(p.stdout, bulkText(done, ""))
		return errors.Join(failed, err)
	})
}

// statsVerb prints what was done.
type statsVerb struct {
	Range string `default:"1h" enum:"1h,24h,7d,30d" help:"How far back: 1h, 24h, 7d or 30d."`
	Queue string `placeholder:"NAME" help:"Only this queue."`
	Job   string `placeholder:"NAME" help:"Only this job."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Run prints the steps of a series.
func (v statsVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		series, err := o.Series(ctx, operate.SeriesRequest{Range: operate.SeriesRange(v.Range), Queue: v.Queue, Job: v.Job})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(series)
		}
		table := p.newTable()
		table.row("FROM", "ENQUEUED", "SUCCEEDED", "FAILED", "DEAD", "CANCELLED", "CRASHED", "WAIT P50", "P95", "P99", "TOOK P50", "P95", "P99")
		for i := range series.Steps {
			if s := &series.Steps[i]; s.Enqueued+s.Succeeded+s.Failed+s.Dead+s.Cancelled+s.Crashed > 0 {
				statsRow(table, s.At.Format("01-02 15:04"), s)
			}
		}
		statsRow(table, "all", &series.Total)
		return table.flush()
	})
}

func statsRow(t *table, name string, s *operate.SeriesStep) {
	cells := []string{name}
	for _, n := range []int64{s.Enqueued, s.Succeeded, s.Failed, s.Dead, s.Cancelled, s.Crashed} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	for _, d := range []*store.Duration{s.Wait.P50, s.Wait.P95, s.Wait.P99, s.Took.P50, s.Took.P95, s.Took.P99} {
		cells = append(cells, about(d))
	}
	t.row(cells...)
}

// about is a time that was estimated.
func about(d *store.Duration) string {
	if d == nil {
		return "-"
	}
	return "≈" + brief(time.Duration(*d))
}
