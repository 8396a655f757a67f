package durablecmd

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
)

// schedulesVerb is the command schedules.
type schedulesVerb struct {
	List    schedulesListVerb    `cmd:"" help:"List schedules by name, including paused ones."`
	Show    schedulesShowVerb    `cmd:"" help:"Show a schedule."`
	Preview schedulesPreviewVerb `cmd:"" help:"Show the last occurrences and what happened to them, and the next ones."`
	Create  schedulesCreateVerb  `cmd:"" help:"Create a schedule for a job."`
	Set     schedulesSetVerb     `cmd:"" help:"Change a schedule. Flags that you omit leave their part unchanged. The change lasts until the declaration in the code changes."`
	Pause   schedulesPauseVerb   `cmd:"" help:"Pause a schedule."`
	Resume  schedulesResumeVerb  `cmd:"" help:"Resume a schedule. It fires from now on."`
	RunNow  schedulesRunNowVerb  `cmd:"" help:"Enqueue a run of a schedule now, and print its id. The schedule's next occurrence does not change."`
	Delete  schedulesDeleteVerb  `cmd:"" help:"Delete a schedule. Its runs stay. A worker that declares it creates it again."`
}

type (
	schedulesListVerb struct {
		watchFlag

		JSON bool `name:"json" help:"Print JSON."`
	}
	schedulesShowVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesPreviewVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		Next int    `default:"5" help:"Number of next occurrences (0 to 1000)."`
		Past int    `default:"5" help:"Number of past runs, skips and changes, each (0 to 1000)."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesPauseVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesResumeVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesDeleteVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesRunNowVerb struct {
		Name  string `arg:"" help:"Name of the schedule."`
		Force bool   `help:"Enqueue it even if as many runs of the schedule are unfinished as it allows."`
		JSON  bool   `name:"json" help:"Print JSON."`
	}
)

// Run prints all schedules.
func (v schedulesListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Schedules(ctx, operate.Part{})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printSchedules(list.Schedules, p.now())
	})
}

// Run prints one schedule.
func (v schedulesShowVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		record, err := o.Schedule(ctx, v.Name)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(record)
		}
		return p.printSchedule(record, p.now())
	})
}

// Run prints the past and the next occurrences.
func (v schedulesPreviewVerb) Run(ctx context.Context, p *program) error {
	if v.Next < 0 || v.Next > 1000 || v.Past < 0 || v.Past > 1000 {
		return usage("--next %d --past %d: want 0 to 1000", v.Next, v.Past)
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		seen, err := o.Preview(ctx, v.Name, v.Next, v.Past)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(seen)
		}
		return p.printPreview(seen, p.now())
	})
}

// printChange prints what was done to a schedule.
func (p *program) printChange(name, done string) error {
	_, err := fmt.Fprintf(p.stdout, "%s %s\n", name, done)
	return err
}

// printStored prints a schedule as JSON, as it is stored now.
func (p *program) printStored(ctx context.Context, o *operate.Actor, name string) error {
	record, err := o.Schedule(ctx, name)
	if err != nil {
		return err
	}
	return p.printJSON(record)
}

// Run pauses.
func (v schedulesPauseVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		if err := o.PauseSchedule(ctx, v.Name); err != nil {
			return err
		}
		if v.JSON {
			return p.printStored(ctx, o, v.Name)
		}
		return p.printChange(v.Name, "paused")
	})
}

// Run resumes.
func (v schedulesResumeVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		if err := o.ResumeSchedule(ctx, v.Name); err != nil {
			return err
		}
		if v.JSON {
			return p.printStored(ctx, o, v.Name)
		}
		return p.printChange(v.Name, "resumed")
	})
}

// Run deletes.
func (v schedulesDeleteVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		deleted, err := o.DeleteSchedule(ctx, v.Name)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(deleted)
		}
		return p.printChange(v.Name, "deleted")
	})
}

// Run creates a run and prints its id.
func (v schedulesRunNowVerb) Run(ctx context.Context, p *program) error {
	overlap := durable.OverlapSkip
	if v.Force {
		overlap = durable.OverlapAllow
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		made, err := o.RunSchedule(ctx, v.Name, overlap)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(made)
		}
		_, err = fmt.Fprintln(p.stdout, made.ID)
		return err
	})
}
